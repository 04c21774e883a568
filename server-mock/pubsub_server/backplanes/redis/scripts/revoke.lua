-- Revoke the lease of a node: remove its members, announce each once, and stop counting its
-- connections.
--
-- KEYS: one prefix with the hash tag of a shard
-- ARGV: the node, maximum members and counters to remove in this call, ms for which an empty topic is
--   remembered, ms for which a revoked id is remembered
-- Returns the remaining number, then topic, client id and presence data of each removed member.

-- include clock.lua
-- include changes.lua

local base, node, most, remember, refuse = KEYS[1], ARGV[1], ARGV[2], tonumber(ARGV[3]),
  tonumber(ARGV[4])

redis.call('ZADD', base .. ':d', whole(now), node)
redis.call('ZREMRANGEBYSCORE', base .. ':d', '-inf', whole(now - refuse))

local answers = { 0 }
for _, entry in ipairs(redis.call('SPOP', base .. ':m:' .. node, most)) do
  local client, topic = string.match(entry, '^(%S+) (.*)$')
  local found = redis.call('HGET', base .. ':p:' .. topic, client)
  local owner, rest
  if found then owner, rest = string.match(found, '^(%S+) (.*)$') end
  if owner == node then
    remove_member(base, topic, client, remember)
    queue_change(base, 'l', topic, client, '', rest)
    answers[#answers + 1] = topic
    answers[#answers + 1] = client
    answers[#answers + 1] = rest
  end
end
for _, key in ipairs(redis.call('SPOP', base .. ':w:' .. node, most)) do
  redis.call('HDEL', base .. ':u:' .. key, node)
end
answers[1] = redis.call('SCARD', base .. ':m:' .. node) + redis.call('SCARD', base .. ':w:' .. node)
if answers[1] == 0 then
  redis.call('ZREM', base .. ':o', node)
  redis.call('DEL', base .. ':n:' .. node, base .. ':y:' .. node, base .. ':k:' .. node)
end
send_queued()
return answers
