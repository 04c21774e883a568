-- Renew the lease of a node, and find the leases that have expired.
--
-- KEYS: the nodes, by the time of their last heartbeat; the revoked ids
-- ARGV: the node, ms without a heartbeat after which a lease expires, `new` for the first heartbeat
-- Returns `late` if the lease of this node has expired, `dead` if another node has revoked it, and `lost`
-- if Redis does not know it, otherwise `ok`; the time in ms; and the nodes whose leases have expired.

-- include clock.lua

local nodes, node, timeout = KEYS[1], ARGV[1], tonumber(ARGV[2])

local last = redis.call('ZSCORE', nodes, node)
if ARGV[3] ~= 'new' then
  if redis.call('ZSCORE', KEYS[2], node) then return { 'dead', whole(now) } end
  if not last then return { 'lost', whole(now) } end
  if tonumber(last) < now - timeout then return { 'late', whole(now) } end
end
redis.call('ZADD', nodes, whole(now), node)
-- The clock was set back. A node that lives sends its next heartbeat in time.
for _, later in ipairs(redis.call('ZRANGE', nodes, whole(now + timeout), '+inf', 'BYSCORE')) do
  redis.call('ZADD', nodes, whole(now), later)
end
local answers = { 'ok', whole(now) }
for _, silent in ipairs(redis.call('ZRANGE', nodes, '-inf', whole(now - timeout - 1), 'BYSCORE')) do
  answers[#answers + 1] = silent
end
return answers
