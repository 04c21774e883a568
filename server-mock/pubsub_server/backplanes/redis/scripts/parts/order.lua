-- Copies of calls. A call without an answer is sent again on another connection, and a server that
-- stalled may execute the first copy after later calls. So each node numbers its calls of a script, and
-- a shard ignores a call below the highest number that it knows. Each script has its own numbers,
-- because calls of different scripts may overtake each other. The other scripts need none: a late copy
-- of their calls does no harm.

-- Whether a shard knows a later call.
local function is_late(key, number) return number <= (tonumber(redis.call('GET', key)) or 0) end

-- Remember the number of this call for this many ms. A full server refuses it, unless the call has
-- written before, so this comes last.
local function note_call(key, number, ms) redis.pcall('SET', key, whole(number), 'PX', whole(ms)) end
