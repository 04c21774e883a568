-- Number, store, trim, deduplicate and fan out the messages that a node publishes in one turn of its
-- event loop.
--
-- KEYS: prefixes with the hash tag of a shard, for example `hp:{17}`; in a cluster, all of one slot
-- ARGV: packed numbers: ids to remember per shard and generation, ms for which ids are remembered if
--   there is room, ms for which a silent topic keeps its numbering, and whether to check the lineage
--   of the shards (1) or to rely on an earlier check on this connection (0); then seven for each
--   message:
--     packed numbers: index into KEYS, retained messages of the topic, ms for which the topic retains
--       a message, ms for which to store this message (-1: as long as the log, 0: not at all), the
--       highest position that the caller knows (0: none); after them, the fingerprint of the publish
--     topic, id, the key that stands for the id (see `key_of`), and the envelope in three parts:
--       before the timestamp, between timestamp and position, and after the position
-- Returns a string for each message: `n POSITION TIME` if it is new, `d POSITION TIME` if it is
-- repeated, `c` if the id belongs to another message. POSITION is 0 for a message that is not stored.
--
-- Ids have two generations, `i` and `j`. When the newer one is full or old enough, it becomes the
-- older one. An entry is the key of an id, with its position, time and fingerprint.
--
-- Each Redis call and each number that is formatted costs about a microsecond. Therefore the script
-- checks expiry and size only at the first message of a topic in each second, and avoids calls.
local cap, remember, silence, check = struct.unpack('<dddd', ARGV[1])
local SECOND = 1000
-- With a shorter retention, check expiry at each message.
local COARSE = 8 * SECOND
local FEW_IDS = 10000

-- Numbers as text, cached because most of them repeat.
local texts = {}
local function text_of(number)
  local text = texts[number]
  if not text then
    text = whole(number)
    texts[number] = text
  end
  return text
end

-- The key that stands for an id, as in `layout.id_key`.
local function key_of(topic, scope, id)
  return string.sub(redis.sha1hex(topic .. ' ' .. scope .. ' ' .. id), 1, 20)
end

-- Remember the ids of the messages in a log, because some of them were lost since.
local function gather_ids(base, topic, log)
  for _, entry in ipairs(redis.call('XRANGE', log, '-', '+')) do
    local seq, time, _, named, id_size, size = struct.unpack('<dddHHI', entry[2][2], 2)
    local from = 34 + named
    local id = string.sub(entry[2][2], from, from + id_size - 1)
    local read, envelope = pcall(cjson.decode, string.sub(entry[2][2], from + id_size))
    local sender = read and envelope.sender
    if sender then
      -- The scope of the sender's ids, as in `backplanes.ids.scope`.
      local scope = sender.type .. ' ' .. #sender.id .. ' ' .. sender.id
      redis.call('HSETNX', base .. ':i', key_of(topic, scope, id), struct.pack('<dd', seq, time))
    end
  end
end

-- The time since which a shard knows all ids, whether there is an older generation, and the entry of
-- an id with its generation. At the first use, after an eviction of a generation, and after a long
-- silence, the time is now; the ids that a log still has are added at the next publish to its topic.
local function find_id(base, key)
  local newer, older = base .. ':i', base .. ':j'
  local held = redis.call('HMGET', newer, 'since', 'turned', key)
  local since, turned, known = tonumber(held[1]), tonumber(held[2]), held[3]
  if not since then
    redis.call('HSET', newer, 'since', whole(now), 'turned', '0')
    redis.call('PEXPIRE', newer, whole(2 * remember))
    since = now
  elseif turned ~= 0 then
    -- Both generations store this time.
    held = redis.call('HMGET', older, 'since', key)
    if not held[1] and now - turned < remember then
      redis.call('HSET', newer, 'since', whole(now), 'turned', '0')
      since = now
    elseif held[2] and not known then
      return since, older, held[2]
    end
  end
  return since, newer, known
end

-- Make the newer generation the older one, if it is full or old enough.
local function turn_ids(base, since)
  local ids = base .. ':i'
  local count = redis.call('HLEN', ids)
  -- The new generation stores this time as well.
  if count - 2 >= cap or (count > 2 and redis.call('PTTL', ids) <= remember) then
    redis.call('UNLINK', base .. ':j')
    redis.call('RENAME', ids, base .. ':j')
    redis.call('PEXPIRE', base .. ':j', whole(remember))
    redis.call('HSET', ids, 'since', whole(since), 'turned', whole(now))
    redis.call('PEXPIRE', ids, whole(2 * remember))
  end
end

-- The time since which each shard has lost nothing, from a check now or from the last check. A check
-- includes shards that get only repeated messages, because the caller relies on it afterwards.
local unbroken = {}
if check == 1 then
  for _, base in ipairs(KEYS) do unbroken[base] = lineage(base) end
end
local function since_of(base, noted)
  local since = noted and tonumber(string.sub(noted, 83)) or lineage(base)
  unbroken[base] = since
  return since
end

local answers = {}
for at = 2, #ARGV, 7 do
  local index, keep, age, ttl, floor, behind = struct.unpack('<Hdddd', ARGV[at])
  local print = string.sub(ARGV[at], behind)
  local base, topic, id, key = KEYS[index], ARGV[at + 1], ARGV[at + 2], ARGV[at + 3]
  local state, log = base .. ':s:' .. topic, base .. ':l:' .. topic
  local start, last, latest, lost, of = now * 1000, nil, now, 0, nil
  local since, found, noted = unbroken[base], nil, nil
  if since then
    found = redis.call('GET', state)
  else
    local held = redis.call('MGET', state, base .. ':r')
    found, noted = held[1], held[2]
  end
  if found then
    start, last, latest, lost, of = read_state(found)
  else
    local top = redis.call('XREVRANGE', log, '+', '-', 'COUNT', 1)[1]
    if top then
      last, latest = tonumber(string.match(top[1], '^(%d+)')), (times_of(top))
    end
  end
  local complete, place, known = find_id(base, key)
  if latest < complete and not known then
    gather_ids(base, topic, log)
    known = redis.call('HGET', place, key)
  end
  local answer
  if known then
    local seq, time = struct.unpack('<dd', known)
    local mark = string.sub(known, 17)
    -- A write, so that a caller that waits for replicas also waits for the original message.
    redis.call('HSET', place, key, known)
    answer = (mark == print or mark == '') and ('d ' .. whole(seq) .. ' ' .. whole(time)) or 'c'
  else
    since = since or since_of(base, noted)
    local starts = base .. ':f'
    local start_known = not found and tonumber(redis.call('ZSCORE', starts, topic))
    if start_known and start_known > floor and start_known > (last or 0) then
      -- Subscribers have received this start.
      start, lost, of = start_known, last and now or 0, since
      last = start_known - 1
    end
    if not last or last < floor or of ~= since then
      -- There is no numbering, or it may have lost positions: start a new one after all of them. The
      -- log keeps its messages, and records that messages before now may be missing.
      if last or floor > 0 then lost = now end
      start = math.max(now * 1000, floor > 0 and floor + LEAP or 0, last and last + LEAP or 0)
      last = start - 1
    end
    local time = math.max(now, latest)
    -- A clock that was set back does not show whether a second has passed. A numbering without a
    -- message has not been checked yet.
    local first = not found or now < latest or last < start or
      math.floor(time / SECOND) ~= math.floor(latest / SECOND)
    local seq, stamp, body = 0, text_of(time), nil
    if ttl == 0 then
      body = ARGV[at + 4] .. stamp .. ARGV[at + 5] .. ARGV[at + 6]
      answer = 'n 0 ' .. stamp
      queue(base, topic, record_of(0, time, time, topic, id, body))
    else
      seq = last + 1
      local number = whole(seq)
      body = ARGV[at + 4] .. stamp .. ARGV[at + 5] .. ',"seq":' .. number .. ARGV[at + 6]
      answer = 'n ' .. number .. ' ' .. stamp
      if ttl < 0 or ttl > age then ttl = age end
      local record = record_of(seq, time, time + ttl, topic, id, body)
      if keep > 0 and ttl > 0 then
        -- Positions of one numbering are contiguous, and `lost` covers the former numberings: trim
        -- all entries up to this position.
        if seq - start >= keep then
          local trimmed = redis.call('XREVRANGE', log, whole(seq - keep), '-', 'COUNT', 1)[1]
          if trimmed then lost = math.max(lost, (times_of(trimmed))) end
        end
        local limit, place_of = text_of(keep), number .. '-0'
        local new = not redis.call('XADD', log, 'NOMKSTREAM', 'MAXLEN', limit, place_of, 'm', record)
        if new then
          redis.call('XADD', log, 'MAXLEN', limit, place_of, 'm', record)
          -- All earlier messages have expired or were evicted.
          if last >= start then lost = math.max(lost, latest) end
        end
        -- The log outlives its newest message, so its expiry is rarely renewed.
        local slack = age < COARSE and 0 or SECOND
        if (first or new or slack == 0) and redis.call('PTTL', log) < age + slack then
          redis.call('PEXPIRE', log, whole(age + age / 8))
        end
      else
        lost = time
      end
      local numbering = state_of(start, seq, time, lost, since)
      if first then
        redis.call('SET', state, numbering, 'PX', text_of(silence))
      else
        redis.call('SET', state, numbering, 'KEEPTTL')
      end
      -- The end of the second, so that all messages of the second are older.
      if first then
        redis.call('ZADD', base .. ':z', text_of(time - time % SECOND + SECOND - 1), topic)
      end
      if start_known then redis.call('ZREM', starts, topic) end
      queue(base, topic, record)
    end
    if first or cap < FEW_IDS or remember < COARSE then turn_ids(base, complete) end
    redis.call('HSET', base .. ':i', key, struct.pack('<dd', seq, time) .. print)
  end
  answers[#answers + 1] = answer
end

send_queued()
return answers
