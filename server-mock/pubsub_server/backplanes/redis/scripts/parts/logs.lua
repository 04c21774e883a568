-- The state of a log: the first position of its numbering, the time of the newest message that may be
-- missing, apart from trimmed ones (0: none), the lineage that assigned the numbering, the time since
-- which the shard knew all ids when the topic was last checked, and position and time (ms) of the
-- newest message. Binary, because formatting and parsing numbers takes longer than the commands that
-- store them.
local function read_state(text) return struct.unpack('<dddddd', text) end

-- An entry of a log has one field, a record. A record is `m`, position and time of the message, the
-- time of the message before it, the ms for which the log retains it, the key that stands for its id,
-- the fingerprint of the publish, the sizes of the five parts that follow, and these: topic, id, and
-- the envelope before the timestamp, between timestamp and position, and after the position.
-- `layout.py` creates the part from the ms, and reads this format.

-- The key that stands for the id of an entry, and the fingerprint of its publish.
local function id_of(entry) return struct.unpack('<c10c12', entry[2][2], 34) end

-- The position of an entry.
local function seq_of(entry) return tonumber(string.match(entry[1], '^%d+')) end

-- Time and expiry of an entry, in ms.
local function times_of(entry)
  local time, _, ttl = struct.unpack('<ddd', entry[2][2], 10)
  return time, time + ttl
end

-- The first position from `low` whose entry is not below, by binary search up to `high`: the entries
-- are in this order.
local function seek(log, low, high, below)
  while low < high do
    local middle = math.floor((low + high) / 2)
    local entry = redis.call('XRANGE', log, whole(middle), '+', 'COUNT', 1)[1]
    if entry and below(entry) then low = seq_of(entry) + 1 else high = middle end
  end
  return low
end

-- The minimum distance between two numberings of a topic: more than the positions of a topic in one
-- millisecond, and less than the clock adds before the next numbering. `reader.py` finds the boundary
-- between numberings by it.
local LEAP = 1000
