-- Count the connections of users and organizations, by node.
--
-- KEYS: prefixes with the hash tag of a shard; in a cluster, all of one slot
-- ARGV: the node, number of the call, ms for which this number is remembered, and the ids of the former
--   leases of the node, each between commas; then four for each counter: index into KEYS, name of the
--   counter, connections of this node, and the maximum on all nodes (-1: no maximum)
-- Returns `dead` if the lease of the node was revoked, and `late` if a later call was executed before;
-- the node has closed the connection of such a call. Otherwise returns `ok`, and for each counter its
-- sum, or -1 if the sum would exceed the maximum; then nothing was changed.

-- include clock.lua
-- include order.lua

local node, number, former = ARGV[1], tonumber(ARGV[2]), ARGV[4]
for _, base in ipairs(KEYS) do
  if redis.call('ZSCORE', base .. ':d', node) then return { 'dead' } end
  if is_late(base .. ':k:' .. node, number) then return { 'late' } end
end
local answers = { 'ok' }
for at = 5, #ARGV, 4 do
  local base, name = KEYS[tonumber(ARGV[at])], ARGV[at + 1]
  local count, most = tonumber(ARGV[at + 2]), tonumber(ARGV[at + 3])
  local key, total = base .. ':u:' .. name, count
  local nodes = redis.call('HGETALL', key)
  for index = 1, #nodes, 2 do
    if string.find(former, ',' .. nodes[index] .. ',', 1, true) then
      redis.call('HDEL', key, nodes[index])
    elseif nodes[index] ~= node then
      total = total + tonumber(nodes[index + 1])
    end
  end
  if most >= 0 and total > most then
    answers[#answers + 1] = -1
  else
    if count > 0 then
      redis.call('HSET', key, node, count)
      redis.call('SADD', base .. ':w:' .. node, name)
      redis.call('ZADD', base .. ':o', whole(now), node)
    else
      redis.call('HDEL', key, node)
      redis.call('SREM', base .. ':w:' .. node, name)
    end
    answers[#answers + 1] = total
  end
end
for _, base in ipairs(KEYS) do note_call(base .. ':k:' .. node, number, ARGV[3]) end
return answers
