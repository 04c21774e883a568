-- Find the topics of a shard that have changed.
--
-- KEYS: one prefix with the hash tag of a shard
-- ARGV: a time in ms, or `+inf`
-- Returns the time in ms, the time since which the shard has lost nothing, and the topics with a
-- message since ARGV.

-- include clock.lua
-- include lineage.lua

local answers = { whole(now), whole(lineage(KEYS[1])) }
for _, topic in ipairs(redis.call('ZRANGE', KEYS[1] .. ':z', ARGV[1], '+inf', 'BYSCORE')) do
  answers[#answers + 1] = topic
end
return answers
