-- Find the topics of a shard whose members have changed. A topic moves between the two indexes when its
-- last member leaves and when the next one joins, so both are read at once.
--
-- KEYS: one prefix with the hash tag of a shard
-- ARGV: the time of the first change, ms
-- Returns the topics.

local topics = {}
for _, index in ipairs({ ':q', ':e' }) do
  for _, topic in ipairs(redis.call('ZRANGE', KEYS[1] .. index, ARGV[1], '+inf', 'BYSCORE')) do
    topics[#topics + 1] = topic
  end
end
return topics
