-- Find the position of a message by its id, in parts: a long search must not delay other calls.
--
-- KEYS: one prefix with the hash tag of a shard
-- ARGV: the topic, the id, the time in ms at which the id was probably created, and where an earlier
--   call stopped: the positions below DOWN and from UP are left (both 0: nothing was searched)
-- Returns the position, or 0 if the log has no such message that has not expired; then DOWN and UP (0:
-- nothing is left in this direction) if the search has to continue.

-- include clock.lua
-- include logs.lua

local log, id, created = KEYS[1] .. ':l:' .. ARGV[1], ARGV[2], tonumber(ARGV[3])
local down, up = tonumber(ARGV[4]), tonumber(ARGV[5])
local AT_ONCE, PARTS = 50, 20

-- The id of the message of an entry.
local function message_of(entry)
  local record = entry[2][2]
  local topic, id = struct.unpack('<HH', record, 56)
  return string.sub(record, 70 + topic, 69 + topic + id)
end

-- Several publishers can use one id, so an expired message does not end the search.
local function is_it(entry)
  local _, expiry = times_of(entry)
  return message_of(entry) == id and expiry > now
end

if down == 0 and up == 0 then
  local oldest = redis.call('XRANGE', log, '-', '+', 'COUNT', 1)[1]
  if not oldest then return { 0 } end
  local first = seq_of(oldest)
  local last = seq_of(redis.call('XREVRANGE', log, '+', '-', 'COUNT', 1)[1]) + 1
  -- The ids of one publisher usually are in the order of their positions.
  local at = seek(log, first, last, function(entry) return message_of(entry) < id end)
  local entry = redis.call('XRANGE', log, whole(at), '+', 'COUNT', 1)[1]
  if entry and is_it(entry) then return { seq_of(entry) } end
  -- Those of several publishers are near their times, except for wrong clocks and long delays.
  up = seek(log, first, last, function(entry) return (times_of(entry)) < created end)
  down = up
end
for _ = 1, PARTS do
  if down > 0 then
    local entries = redis.call('XREVRANGE', log, whole(down - 1), '-', 'COUNT', AT_ONCE)
    for _, entry in ipairs(entries) do
      if is_it(entry) then return { seq_of(entry) } end
    end
    down = #entries == AT_ONCE and seq_of(entries[AT_ONCE]) or 0
  end
  if up > 0 then
    local entries = redis.call('XRANGE', log, whole(up), '+', 'COUNT', AT_ONCE)
    for _, entry in ipairs(entries) do
      if is_it(entry) then return { seq_of(entry) } end
    end
    up = #entries == AT_ONCE and seq_of(entries[AT_ONCE]) + 1 or 0
  end
  if down == 0 and up == 0 then return { 0 } end
end
return { 0, down, up }
