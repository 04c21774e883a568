-- A node lives; which others do not?
--
-- KEYS  the nodes by the time of their last beat
-- ARGV  the node, ms without a beat after which a node is given up, `new` for the first beat
-- gives `late` where this node has been silent for longer or is not known, else `ok`; the time in
--       ms; and the nodes that have been silent for longer
local nodes, node, timeout = KEYS[1], ARGV[1], tonumber(ARGV[2])

local last = redis.call('ZSCORE', nodes, node)
if ARGV[3] ~= 'new' and (not last or tonumber(last) < now - timeout) then
  return { 'late', whole(now) }
end
redis.call('ZADD', nodes, whole(now), node)
local answers = { 'ok', whole(now) }
for _, silent in ipairs(redis.call('ZRANGE', nodes, '-inf', whole(now - timeout - 1), 'BYSCORE')) do
  answers[#answers + 1] = silent
end
return answers
