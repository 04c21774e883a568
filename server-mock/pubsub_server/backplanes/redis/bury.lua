-- A node is given up: its members leave, each told once, and its connections count no more.
--
-- KEYS  one prefix with the hash tag of a shard
-- ARGV  the node, members and counters taken at most, ms an emptied topic is remembered, ms a name
--       of a node that was given up is remembered
-- gives how many are left, and then topic, client id, what it showed, for each member that left
local base, node, most, remember, grave = KEYS[1], ARGV[1], ARGV[2], tonumber(ARGV[3]),
  tonumber(ARGV[4])
local clock = redis.call('TIME')
local now = tonumber(clock[1]) * 1000000 + tonumber(clock[2])
local function whole(number) return string.format('%.0f', number) end

redis.call('ZADD', base .. ':d', whole(now / 1000), node)
redis.call('ZREMRANGEBYSCORE', base .. ':d', '-inf', whole(now / 1000 - grave))

local answers, channels, order = { 0 }, {}, {}
for _, entry in ipairs(redis.call('SPOP', base .. ':m:' .. node, most)) do
  local client, topic = string.match(entry, '^(%S+) (.*)$')
  local members = base .. ':p:' .. topic
  local found = redis.call('HGET', members, client)
  local owner, rest
  if found then owner, rest = string.match(found, '^(%S+) (.*)$') end
  if owner == node then
    redis.call('HDEL', members, client)
    if redis.call('HLEN', members) == 0 then
      redis.call('ZREM', base .. ':q', topic)
      redis.call('ZADD', base .. ':e', whole(now / 1000), topic)
      redis.call('ZREMRANGEBYSCORE', base .. ':e', '-inf', whole(now / 1000 - remember))
    else
      redis.call('ZADD', base .. ':q', whole(now / 1000), topic)
    end
    local record = 'pl ' .. whole(now) .. ' ' .. #topic .. ' ' .. #client .. ' 0 ' .. #rest ..
      '\n' .. topic .. client .. rest
    for _, channel in ipairs({ base .. ':t:' .. topic, base .. ':a' }) do
      local records = channels[channel]
      if not records then
        records = {}
        channels[channel] = records
        order[#order + 1] = channel
      end
      records[#records + 1] = record
    end
    answers[#answers + 1] = topic
    answers[#answers + 1] = client
    answers[#answers + 1] = rest
  end
end
for _, key in ipairs(redis.call('SPOP', base .. ':w:' .. node, most)) do
  redis.call('HDEL', base .. ':u:' .. key, node)
end
answers[1] = redis.call('SCARD', base .. ':m:' .. node) + redis.call('SCARD', base .. ':w:' .. node)
for _, channel in ipairs(order) do
  redis.call('SPUBLISH', channel, table.concat(channels[channel]))
end
return answers
