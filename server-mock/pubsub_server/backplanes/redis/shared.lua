-- What the scripts have in common; `link` puts it before each.

local clock = redis.call('TIME')
-- The time of this call: microseconds, and ms.
local exactly = tonumber(clock[1]) * 1000000 + tonumber(clock[2])
local now = math.floor(exactly / 1000)

-- A number without exponent or fraction.
local function whole(number) return string.format('%.0f', number) end

-- Whoever listens to the topic or to its whole shard gets the record with `publish_told`, in one
-- message a channel.
local told, channels = {}, {}
local function add(channel, record)
  local records = told[channel]
  if not records then
    records = {}
    told[channel] = records
    channels[#channels + 1] = channel
  end
  records[#records + 1] = record
end
local function tell(base, topic, record)
  add(base .. ':t:' .. topic, record)
  add(base .. ':a', record)
end
local function publish_told()
  for _, channel in ipairs(channels) do
    redis.call('SPUBLISH', channel, table.concat(told[channel]))
  end
end

-- A member of a topic joined, changed, moved or left.
local function tell_change(base, change, topic, client, id, body)
  tell(base, topic, 'p' .. change .. ' ' .. whole(exactly) .. ' ' .. #topic .. ' ' .. #client ..
    ' ' .. #id .. ' ' .. #body .. '\n' .. topic .. client .. id .. body)
end

-- Take a member out; a topic without members is remembered for so many ms.
local function take_out(base, topic, client, remember)
  local members = base .. ':p:' .. topic
  redis.call('HDEL', members, client)
  if redis.call('HLEN', members) == 0 then
    redis.call('ZREM', base .. ':q', topic)
    redis.call('ZADD', base .. ':e', whole(now), topic)
    redis.call('ZREMRANGEBYSCORE', base .. ':e', '-inf', whole(now - remember))
  else
    redis.call('ZADD', base .. ':q', whole(now), topic)
  end
end
