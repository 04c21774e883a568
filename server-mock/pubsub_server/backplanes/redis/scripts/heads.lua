-- Read the heads of logs. If a log has lost positions that the caller knows, start a new numbering
-- after them.
--
-- KEYS: one prefix with the hash tag of a shard
-- ARGV: ms for which a silent topic keeps its numbering; then two for each topic: the topic, and the
--   highest position that the caller knows
-- Returns the head of each topic: its newest position, or 0 for a topic without a log.

-- include clock.lua
-- include logs.lua
-- include lineage.lua

local base, silence = KEYS[1], ARGV[1]

local since = lineage(base)
now = math.max(now, since)
local answers = {}
for at = 2, #ARGV, 2 do
  local topic, known = ARGV[at], tonumber(ARGV[at + 1])
  local state = base .. ':s:' .. topic
  local found = redis.call('GET', state)
  local _, gathered, last
  if found then _, _, _, gathered, last = read_state(found) end
  if last and last < known then
    local start = math.max(now * 1000, known + LEAP, last + LEAP)
    last = start - 1
    redis.call('SET', state, struct.pack('<dddddd', start, now, since, gathered, last, now), 'PX', silence)
    redis.call('ZADD', base .. ':z', whole(now), topic)
  end
  answers[#answers + 1] = whole(last or 0)
end
return answers
