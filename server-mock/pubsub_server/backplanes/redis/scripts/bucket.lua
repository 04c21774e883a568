-- A token bucket that all nodes share.
--
-- KEYS: the bucket
-- ARGV: tokens per second, maximum tokens, requested tokens
-- Returns the granted tokens, and the ms until the next token (0 if all are granted).

-- include clock.lua

local rate, most, wanted = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local level = most
local found = redis.call('GET', KEYS[1])
if found then
  local held, at = string.match(found, '^(%S+) (%S+)$')
  level = math.min(most, tonumber(held) + math.max(0, exactly - tonumber(at)) * rate / 1000000)
end
local granted = math.min(wanted, math.floor(level + 1e-9))
level = level - granted
local full = math.ceil((most - level) / rate * 1000) + 1
redis.call('SET', KEYS[1], string.format('%.17g %.0f', level, exactly), 'PX', full)
local wait = 0
if granted < wanted then wait = math.max(0, math.ceil((1 - level) / rate * 1000)) end
return { granted, wait }
