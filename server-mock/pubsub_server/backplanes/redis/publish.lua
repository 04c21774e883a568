-- Number, store, trim, deduplicate and fan out the messages that a node publishes in one turn of its
-- event loop.
--
-- KEYS: prefixes with the hash tag of a shard, for example `hp:{17}`; in a cluster, all of one slot
-- ARGV: packed numbers: ids to remember per shard and generation, ms for which ids are remembered if
--   there is room, ms for which a silent topic keeps its numbering, and whether to check the lineage
--   of the shards (1) or to rely on an earlier check on this connection (0); then one for each
--   message, as `layout.pack_message` packs it: index into KEYS, ms for which the topic retains a
--   message, ms for which to store this message (-1: it gets no position), the highest position that
--   the caller knows (0: none), the fingerprint of the publish, the key that stands for the id (see
--   `gather_ids`), the retained messages of the topic, the topic, and the rest of the record
-- Returns a string for each message, with position and time as doubles: `n` if it is new, `d` if it is
-- repeated, or only `c` if the id belongs to another message. The position is 0 for a message that is
-- not stored. If the script has read the replication id of the server, it is the last string.
--
-- Each Redis call and each call of a library from Lua costs up to a microsecond. Therefore the script
-- leaves the text of the envelope to the nodes, and checks expiry and size only at the first message
-- of a topic in each second.
local call, pack, unpack = redis.call, struct.pack, struct.unpack
local cap, remember, silence, check = unpack('<dddd', ARGV[1])
local SECOND = 1000
-- With a shorter retention, check expiry at each message.
local COARSE = 8 * SECOND
local FEW_IDS = 10000

-- Ids have two generations, `i` and `j`. When the newer one is full or old enough, it becomes the
-- older one. An entry is the key of an id, with its position, time and fingerprint. The entry `since`
-- has the time since which the shard knows all ids, and the time at which the older generation became
-- that (0: there is none). Redis searches a small hash linearly unless an entry is longer than 64
-- bytes; this one is.
local function begin_ids(ids, since, turned)
  call('HSET', ids, 'since', pack('<dd', since, turned) .. string.rep(' ', 64))
end

-- Remember the ids of the messages in a log, because some of them were lost since.
local function gather_ids(ids, topic, log)
  for _, entry in ipairs(call('XRANGE', log, '-', '+')) do
    local place, id, head, rest = parts_of(entry[2][2])
    local read, envelope = pcall(cjson.decode, head .. '0' .. rest)
    local sender = read and envelope.sender
    if sender then
      -- The scope of the sender's ids, as in `backplanes.ids.scope`, and the key, as in
      -- `layout.id_key`.
      local scope = sender.type .. ' ' .. #sender.id .. ' ' .. sender.id
      local digest = redis.sha1hex(topic .. ' ' .. scope .. ' ' .. id)
      local key = string.gsub(string.sub(digest, 1, 20), '..', function(hex)
        return string.char(tonumber(hex, 16))
      end)
      call('HSETNX', ids, key, place)
    end
  end
end

-- Make the newer generation the older one, if it is full or old enough.
local function turn_ids(newer, older, since)
  local count = call('HLEN', newer) - 1
  if count >= cap or (count > 0 and call('PTTL', newer) <= remember) then
    call('UNLINK', older)
    call('RENAME', newer, older)
    call('PEXPIRE', older, whole(remember))
    -- The new generation stores this time as well.
    begin_ids(newer, since, now)
    call('PEXPIRE', newer, whole(2 * remember))
  end
end

-- The time since which each shard has lost nothing, where it was checked now. A check includes shards
-- that get only repeated messages, because the caller relies on it afterwards.
local unbroken = {}
if check == 1 then
  for _, base in ipairs(KEYS) do unbroken[base] = lineage(base) end
end

-- A message that is the only one needs no queue.
local answers, alone = {}, #ARGV == 2
for at = 2, #ARGV do
  local index, age, ttl, floor, print, key, keep, topic, from =
    unpack('<Hdddc12c10Bc0Hc0', ARGV[at])
  local base = KEYS[index]
  local state, log, ids = base .. ':s:' .. topic, base .. ':l:' .. topic, base .. ':i'
  local held = call('MGET', state, base .. ':r')
  local found, noted = held[1], held[2]
  local start, lost, of, last, latest = now * 1000, 0, nil, nil, now
  if found then
    start, lost, of, last, latest = read_state(found)
  else
    local top = call('XREVRANGE', log, '+', '-', 'COUNT', 1)[1]
    if top then
      last, latest = tonumber(string.match(top[1], '^(%d+)')), (times_of(top))
    end
  end

  -- At the first use, after an eviction of a generation, and after a long silence, the shard knows
  -- the ids of later messages only. The ids that a log still has are added at the next publish to its
  -- topic.
  held = call('HMGET', ids, 'since', key)
  local complete, turned, known, older = now, 0, held[2], nil
  if held[1] then
    complete, turned = unpack('<dd', held[1])
  else
    begin_ids(ids, now, 0)
    call('PEXPIRE', ids, whole(2 * remember))
  end
  local holder = ids
  if turned ~= 0 then
    older = base .. ':j'
    -- Both generations have the entry `since`.
    held = call('HMGET', older, 'since', key)
    if not held[1] and now - turned < remember then
      begin_ids(ids, now, 0)
      complete = now
    elseif held[2] and not known then
      holder, known = older, held[2]
    end
  end
  if latest < complete and not known then
    gather_ids(ids, topic, log)
    known = call('HGET', holder, key)
  end

  local answer
  if known then
    local mark = string.sub(known, 17)
    -- A write, so that a caller that waits for replicas also waits for the original message.
    call('HSET', holder, key, known)
    answer = (mark == print or mark == '') and 'd' .. string.sub(known, 1, 16) or 'c'
  else
    local since = unbroken[base] or noted and unpack('<d', noted) or lineage(base)
    local starts = not found and base .. ':f'
    local start_known = starts and tonumber(call('ZSCORE', starts, topic))
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
    local time = now < latest and latest or now
    -- A clock that was set back does not show whether a second has passed. A numbering without a
    -- message has not been checked yet.
    local first = not found or now < latest or last < start or
      time - time % SECOND ~= latest - latest % SECOND
    local place, record
    if ttl < 0 then
      place = pack('<dd', 0, time)
      record = 'm' .. place .. pack('<d', time) .. string.sub(ARGV[at], from)
    else
      local seq, renewed = last + 1, first
      place = pack('<dd', seq, time)
      record = 'm' .. place .. pack('<d', latest) .. string.sub(ARGV[at], from)
      if keep ~= '0' and ttl > 0 then
        local new = not call('XADD', log, 'NOMKSTREAM', 'MAXLEN', keep, whole(seq), 'm', record)
        if new then
          call('XADD', log, 'MAXLEN', keep, whole(seq), 'm', record)
          -- All earlier messages have expired or were evicted.
          if last >= start then lost, renewed = math.max(lost, latest), true end
        end
        -- The log outlives its newest message, so its expiry is rarely renewed.
        local slack = age < COARSE and 0 or SECOND
        if (first or new or slack == 0) and call('PTTL', log) < age + slack then
          call('PEXPIRE', log, whole(age + age / 8))
        end
      else
        lost, renewed = time, true
      end
      if renewed then
        call('SET', state, pack('<ddd', start, lost, since) .. place, 'PX', whole(silence))
        -- The end of the second, so that all messages of the second are older.
        call('ZADD', base .. ':z', whole(time - time % SECOND + SECOND - 1), topic)
      else
        call('SETRANGE', state, '24', place)
      end
      if start_known then call('ZREM', starts, topic) end
    end
    if alone then
      call('SPUBLISH', base .. ':t:' .. topic, record)
      call('SPUBLISH', base .. ':a', record)
    else
      queue(base, topic, record)
    end
    if first or cap < FEW_IDS or remember < COARSE then turn_ids(ids, base .. ':j', complete) end
    call('HSET', ids, key, place .. print)
    answer = 'n' .. place
  end
  answers[at - 1] = answer
end

send_queued()
answers[#answers + 1] = replication_id()
return answers
