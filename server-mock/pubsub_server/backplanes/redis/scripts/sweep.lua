-- Find the topics of a shard that have changed, and remove those without a numbering from its index.
--
-- KEYS: one prefix with the hash tag of a shard
-- ARGV: a time in ms, or `+inf`; ms for which a silent topic keeps its numbering (0: remove none); the
--   earliest time in ms since which the shard can have lost nothing (0: unknown)
-- Returns the time in ms, the time since which the shard has lost nothing, and the topics with a
-- message since ARGV.

-- include clock.lua
-- include lineage.lua

local index, silence = KEYS[1] .. ':z', tonumber(ARGV[2])
local answers = { whole(now), whole(lineage(KEYS[1], tonumber(ARGV[3]))) }
for _, topic in ipairs(redis.call('ZRANGE', index, ARGV[1], '+inf', 'BYSCORE')) do
  answers[#answers + 1] = topic
end
if silence > 0 then
  -- A bounded number, so that the call is short. A server that refuses writes must not fail the search.
  local silent = redis.call('ZCOUNT', index, '-inf', '(' .. whole(now - silence))
  if silent > 0 then redis.pcall('ZREMRANGEBYRANK', index, 0, math.min(silent, 1000) - 1) end
end
return answers
