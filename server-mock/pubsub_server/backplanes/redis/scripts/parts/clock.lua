local clock = redis.call('TIME')
-- The time of this call, in microseconds and in ms.
local exactly = tonumber(clock[1]) * 1000000 + tonumber(clock[2])
local now = math.floor(exactly / 1000)

-- An integer as text. `%d` takes a tenth of the time of `%.0f`.
local function whole(number) return string.format('%d', number) end
