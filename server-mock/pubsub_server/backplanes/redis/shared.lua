-- Functions of all scripts; `link` inserts them before each script. Each call builds them again, so
-- functions of few scripts are in files of their own.

local clock = redis.call('TIME')
-- The time of this call, in microseconds and in ms.
local exactly = tonumber(clock[1]) * 1000000 + tonumber(clock[2])
local now = math.floor(exactly / 1000)

-- An integer as text. `%d` takes a tenth of the time of `%.0f`.
local function whole(number) return string.format('%d', number) end

-- The state of a log: the first position of its numbering, the time of the newest message that may be
-- missing, apart from trimmed ones (0: none), the lineage that assigned the numbering, and position
-- and time (ms) of the newest message. Binary, because formatting and parsing five numbers takes
-- longer than the commands that store them.
local function read_state(text) return struct.unpack('<ddddd', text) end

-- An entry of a log has one field, a record. A record is `m`, position and time of the message, the
-- time of the message before it, the ms for which the log retains it, the sizes of the five parts that
-- follow, and these: topic, id, and the envelope before the timestamp, between timestamp and position,
-- and after the position. `layout.py` reads this format.

-- Time and expiry of an entry, in ms.
local function times_of(entry)
  local time, _, ttl = struct.unpack('<ddd', entry[2][2], 10)
  return time, time + ttl
end
-- Position and time, id, and the envelope before and after the timestamp, without its position.
local function parts_of(record)
  local topic_size, id_size, head_size, from = struct.unpack('<HHI', record, 34)
  from = from + 6 + topic_size
  local split = from + id_size + head_size
  return string.sub(record, 2, 17), string.sub(record, from, from + id_size - 1),
    string.sub(record, from + id_size, split - 1), string.sub(record, split)
end
-- The time of the newest trimmed message of a numbering: the oldest entry of the log has it. 0: none.
local function trimmed_of(log, start)
  local oldest = redis.call('XRANGE', log, '-', '+', 'COUNT', 1)[1]
  if not oldest then return 0 end
  local seq, _, before = struct.unpack('<ddd', oldest[2][2], 2)
  return seq > start and before or 0
end

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
-- must not assign a position again. `BASE:r` holds this time, and the replication id and the run
-- id of the server that wrote last. If the same server has a new replication id, it only got its first
-- replica. If a process is older than this time and was no replica, a slot migration brought the keys.
local info
-- The replication id of the server, if this call has read it.
local function replication_id()
  if not info then return nil end
  -- A plain search and fixed offsets are faster than a pattern. Both ids have 40 characters.
  local _, before = string.find(info, 'master_replid:', 1, true)
  return string.sub(info, before + 1, before + 40)
end
local function lineage(base)
  info = info or redis.call('INFO', 'replication')
  local key, id = base .. ':r', replication_id()
  local found = redis.call('GET', key)
  local since = found and struct.unpack('<d', found)
  if found and string.sub(found, 9, 48) == id then return since end
  local server = redis.call('INFO', 'server')
  local here = string.match(server, 'run_id:(%x+)')
  local began = now - tonumber(string.match(server, 'uptime_in_seconds:(%d+)')) * 1000
  local promoted = string.match(info, 'second_repl_offset:(%-?%d+)') ~= '-1'
  local former = since
  if not since then
    since = now
  elseif promoted or not (string.sub(found, 49) == here or DURABLE or began < since) then
    since = math.max(now, since + 1)
  end
  -- A log may be among the losses, so its topic must not start at the same position again.
  if since ~= former then redis.pcall('DEL', base .. ':f') end
  redis.pcall('SET', key, struct.pack('<d', since) .. id .. here)
  return since
end
