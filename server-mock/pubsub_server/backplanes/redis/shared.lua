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

-- Since when a shard has lost nothing that was acknowledged, Unix ms.
--
-- A replica that is promoted, and a server that begins again from a snapshot, may lack what came
-- last; what is numbered there must not get a position that was given before. `BASE:r` holds the
-- replication id and the run id of the server that wrote last, and since when nothing was lost.
-- The same server with another replication id has only been given its first replica. A process that
-- is older than that time, and was no replica, got the keys by a move of their slot.
-- By so much a numbering that began just now goes on beyond what it is known to have given: more than
-- a topic is given within a millisecond, and less than what the clock adds until the next such turn.
-- `reader.py` knows by it where one numbering ends and another begins.
local LEAP = 1000
local info
local function lineage(base)
  info = info or redis.call('INFO', 'replication')
  local key, id = base .. ':r', string.match(info, 'master_replid:(%x+)')
  local found, since = redis.call('GET', key), nil
  local server, run
  if found then
    local known
    known, run, since = string.match(found, '^(%S+) (%S+) (%d+)$')
    since = tonumber(since)
    if known == id then return since end
  end
  server = redis.call('INFO', 'server')
  local here = string.match(server, 'run_id:(%x+)')
  local began = now - tonumber(string.match(server, 'uptime_in_seconds:(%d+)')) * 1000
  local promoted = string.match(info, 'second_repl_offset:(%-?%d+)') ~= '-1'
  if not since then
    since = now
  elseif promoted or not (run == here or DURABLE or began < since) then
    since = math.max(now, since + 1)
  end
  -- A log that began may lack, so its topic must not start again where it did.
  if whole(since) ~= string.match(found or '', ' (%d+)$') then redis.pcall('DEL', base .. ':f') end
  redis.pcall('SET', key, id .. ' ' .. here .. ' ' .. whole(since))
  return since
end
