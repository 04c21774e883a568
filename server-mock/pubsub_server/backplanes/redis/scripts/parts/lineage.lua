-- The time since which a shard has lost no acknowledged message, Unix ms.
--
-- A promoted replica, and a server that restarts from a snapshot, may lack the newest messages; they
-- must not assign a position again. `BASE:r` holds this time, and the replication id and the run
-- id of the server that wrote last. If the same server has a new replication id, it only got its first
-- replica. If a process is older than this time and was no replica, a slot migration brought the keys.
-- Redis reports the age of its process as a difference of whole seconds, which can be a second too long,
-- and is negative after the clock was set back.
--
-- A promoted replica may have a clock that is behind. Clients resume by times of the former server, so
-- a node that knows a later one increases this time (`least`), and no message gets an earlier time.
local info
-- The replication id of the server, if this call has read it.
local function replication_id()
  if not info then return nil end
  -- A plain search and fixed offsets are faster than a pattern. Both ids have 40 characters.
  local _, before = string.find(info, 'master_replid:', 1, true)
  return string.sub(info, before + 1, before + 40)
end
local function lineage(base, least)
  info = info or redis.call('INFO', 'replication')
  local key, id = base .. ':r', replication_id()
  local found = redis.call('GET', key)
  local since = found and struct.unpack('<d', found)
  if found and string.sub(found, 9, 48) == id and since >= (least or 0) then return since end
  local server = redis.call('INFO', 'server')
  local here = string.match(server, 'run_id:(%x+)')
  local began = now - tonumber(string.match(server, 'uptime_in_seconds:(%-?%d+)')) * 1000 + 1000
  local promoted = string.match(info, 'second_repl_offset:(%-?%d+)') ~= '-1'
  local former = since
  if not since then
    since = now
  elseif promoted or not (string.sub(found, 49) == here or DURABLE or began < since) then
    since = math.max(now, since + 1, least or 0)
  end
  -- A full server refuses this. It would accept a `DEL`, and then every other write of the call.
  local noted = redis.pcall('SET', key, struct.pack('<d', since) .. id .. here)
  -- A log may be among the losses, so its topic must not start at the same position again.
  if noted.ok and since ~= former then redis.call('DEL', base .. ':f') end
  return since
end
