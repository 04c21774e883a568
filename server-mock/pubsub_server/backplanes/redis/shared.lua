-- Functions of all scripts; `link` inserts them before each script. Each call builds them again, so
-- functions of few scripts are in files of their own.

local clock = redis.call('TIME')
-- The time of this call, in microseconds and in ms.
local exactly = tonumber(clock[1]) * 1000000 + tonumber(clock[2])
local now = math.floor(exactly / 1000)

-- An integer as text. `%d` takes a tenth of the time of `%.0f`.
local function whole(number) return string.format('%d', number) end

-- The state of a log: the first position of its numbering, position and time (ms) of the newest
-- message, time of the newest message that may be missing (0: none), and the lineage that assigned the
-- numbering. Binary, because formatting and parsing five numbers takes longer than the commands that
-- store them.
local function read_state(text) return struct.unpack('<ddddd', text) end
local function state_of(start, last, latest, lost, of)
  return struct.pack('<ddddd', start, last, latest, lost, of)
end

-- A message in logs and channels; `layout.py` reads this format.
local function record_of(seq, time, expires, topic, id, body)
  return 'm' .. struct.pack('<dddHHI', seq, time, expires, #topic, #id, #body) .. topic .. id .. body
end
-- Time and expiry of an entry of a log, in ms.
local function times_of(entry) return struct.unpack('<dd', entry[2][2], 10) end

-- `send_queued` sends the queued records to the subscribers of the topic and of its whole shard, as
-- one message per channel.
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

-- The minimum distance between two numberings of a topic: more than the positions of a topic in one
-- millisecond, and less than the clock adds before the next numbering. `reader.py` finds the boundary
-- between numberings by it.
local LEAP = 1000

-- The time since which a shard has lost no acknowledged message, Unix ms.
--
-- A promoted replica, and a server that restarts from a snapshot, may lack the newest messages; they
-- must not assign a position again. `BASE:r` holds the replication id and the run id of the server
-- that wrote last, and this time. If the same server has a new replication id, it only got its first
-- replica. If a process is older than this time and was no replica, a slot migration brought the keys.
local info
local function lineage(base)
  info = info or redis.call('INFO', 'replication')
  local key = base .. ':r'
  -- A plain search and fixed offsets are faster than a pattern. Both ids have 40 characters.
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
  -- A log may be among the losses, so its topic must not start at the same position again.
  if whole(since) ~= string.match(found or '', ' (%d+)$') then redis.pcall('DEL', base .. ':f') end
  redis.pcall('SET', key, id .. ' ' .. here .. ' ' .. whole(since))
  return since
end
