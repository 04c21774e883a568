-- What the scripts have in common; `link` puts it before each. Each call builds these functions again,
-- so what few scripts need is in files of its own.

local clock = redis.call('TIME')
-- The time of this call: microseconds, and ms.
local exactly = tonumber(clock[1]) * 1000000 + tonumber(clock[2])
local now = math.floor(exactly / 1000)

-- A whole number as text. `%d` takes a tenth of the time of `%.0f`.
local function whole(number) return string.format('%d', number) end

-- The state of a log: position of the first message that it numbered, position, and time in ms, of the
-- newest one, time of the newest message that may lack (0: none), and the lineage that numbered it.
-- Binary: formatting and reading five numbers takes longer than the commands that keep them.
local function read_state(text) return struct.unpack('<ddddd', text) end
local function state_of(start, last, latest, lost, of)
  return struct.pack('<ddddd', start, last, latest, lost, of)
end

-- A message, as logs keep it and channels carry it: `layout.py` reads the same.
local function record_of(seq, time, expires, topic, id, body)
  return 'm' .. struct.pack('<dddHHI', seq, time, expires, #topic, #id, #body) .. topic .. id .. body
end
-- Time and expiry, in ms, of an entry of a log.
local function times_of(entry) return struct.unpack('<dd', entry[2][2], 10) end

-- Subscribers to the topic and to its whole shard get the queued records with `send_queued`, in one
-- message a channel.
local queued, channels = {}, {}
local function add(channel, record)
  local records = queued[channel]
  if records then
    records[#records + 1] = record
  else
    queued[channel] = { record }
    channels[#channels + 1] = channel
  end
end
local function queue(base, topic, record)
  add(base .. ':t:' .. topic, record)
  add(base .. ':a', record)
end
local function send_queued()
  for _, channel in ipairs(channels) do
    local records = queued[channel]
    redis.call('SPUBLISH', channel, records[2] and table.concat(records) or records[1])
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
  local key = base .. ':r'
  -- A plain search, and places: a pattern would be tried at every character. Both ids have 40.
  local _, before = string.find(info, 'master_replid:', 1, true)
  local id = string.sub(info, before + 1, before + 40)
  local found, since, run = redis.call('GET', key), nil, nil
  if found then
    run, since = string.sub(found, 42, 81), tonumber(string.sub(found, 83))
    if string.sub(found, 1, 40) == id then return since end
  end
  local server = redis.call('INFO', 'server')
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
