-- Read the members of topics of one shard, as one snapshot.
--
-- KEYS: one prefix with the hash tag of a shard
-- ARGV: topics
-- Returns the time in microseconds, then the members of each topic: client id, node and presence data.

-- include clock.lua

local answers = { whole(exactly) }
for _, topic in ipairs(ARGV) do
  answers[#answers + 1] = redis.call('HGETALL', KEYS[1] .. ':p:' .. topic)
end
return answers
