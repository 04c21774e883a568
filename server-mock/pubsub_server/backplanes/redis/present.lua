-- Who is present on topics of one shard, all of one moment.
--
-- KEYS  one prefix with the hash tag of a shard
-- ARGV  topics
-- gives the time in microseconds, then for each topic its members: client id, node and what it shows
local answers = { whole(exactly) }
for _, topic in ipairs(ARGV) do
  answers[#answers + 1] = redis.call('HGETALL', KEYS[1] .. ':p:' .. topic)
end
return answers
