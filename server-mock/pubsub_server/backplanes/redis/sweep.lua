-- What has moved in a shard, and since when the shard has lost nothing.
--
-- KEYS  one prefix with the hash tag of a shard
-- ARGV  a time in ms, or `+inf`
-- gives the time in ms; since when nothing was lost; and the topics with a message since ARGV
local answers = { whole(now), whole(lineage(KEYS[1])) }
for _, topic in ipairs(redis.call('ZRANGE', KEYS[1] .. ':z', ARGV[1], '+inf', 'BYSCORE')) do
  answers[#answers + 1] = topic
end
return answers
