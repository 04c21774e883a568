-- Number, store, trim, deduplicate and fan out the messages that a node publishes in one turn of its
-- event loop.
--
-- KEYS: prefixes with the hash tag of a shard, for example `hp:{17}`; in a cluster, all of one slot
-- ARGV: packed numbers: ids to remember per shard and generation, ms for which ids are remembered if
--   there is room, ms for which a silent topic keeps its numbering, and whether to check the lineage
--   of the shards (1) or to rely on an earlier check on this connection (0); then one for each
--   message, as `layout.Packer` packs it: index into KEYS, whether the id may be known (1: yes; 0: the
--   caller has just created it), whether it gets a position (1) or not (0), ms for which the topic
--   retains a message, the highest position that the caller knows (0: none), the retained messages of
--   the topic, the topic, and the part of the record that the caller knows (see `logs.lua`)
-- Returns a string for each message, with position and time as doubles: `n` if it is new, `d` if it is
-- repeated, or only `c` if the id belongs to another message. The position is 0 for a message that is
-- not stored. If the script has read the replication id of the server, it is the last string.
--
-- Each Redis call and each call of a library from Lua costs up to a microsecond. Therefore the script
-- leaves the text of the envelope to the nodes, and checks expiry and size only at the first message
-- of a topic in each second.

-- include clock.lua

local call, pack, unpack, sub = redis.call, struct.pack, struct.unpack, string.sub
local cap, remember, silence, check = unpack('<dddd', ARGV[1])
local SECOND = 1000
-- With a shorter retention, check expiry at each message.
local COARSE = 8 * SECOND
local few_ids = cap < 10000 or remember < COARSE

-- Ids have two generations, `i` and `j`. When the newer one is full or old enough, it becomes the
-- older one. An entry is the key of an id, with its position, time and fingerprint. The entry `since`
-- has the time since which the shard knows all ids, and the time at which the older generation became
-- that (0: there is none). Redis searches a small hash linearly unless an entry is longer than 64
-- bytes; this one is.

-- Functions that few calls need. Building them takes as long as two Redis calls.
local extras
local function load_extras()
  if extras then return extras end
  -- include logs.lua
  -- include lineage.lua
  -- include channels.lua

  local function begin_ids(ids, since, turned)
    call('HSET', ids, 'since', pack('<dd', since, turned) .. string.rep(' ', 64))
  end

  -- Remember the ids of the messages in a log, because some of them were lost since.
  local function gather_ids(ids, log)
    for _, entry in ipairs(call('XRANGE', log, '-', '+')) do
      local key, mark = id_of(entry)
      call('HSETNX', ids, key, sub(entry[2][2], 2, 17) .. mark)
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

  extras = {
    LEAP = LEAP, times_of = times_of, lineage = lineage, replication_id = replication_id,
    queue = queue, send_queued = send_queued,
    begin_ids = begin_ids, gather_ids = gather_ids, turn_ids = turn_ids,
  }
  return extras
end

-- The time since which each shard has lost nothing, where it was checked now. A check includes shards
-- that get only repeated messages, because the caller relies on it afterwards.
local unbroken = {}
if check == 1 then
  for _, base in ipairs(KEYS) do unbroken[base] = load_extras().lineage(base) end
end

-- A message that is the only one needs no queue.
local answers, alone = {}, #ARGV == 2
for at = 2, #ARGV do
  local index, may_be_known, numbered, age, floor, keep, topic, ttl, key, mark, from =
    unpack('<HBBddBc0Hc0dc10c12', ARGV[at])
  -- The record begins with the last three.
  local rest = sub(ARGV[at], from - 30)
  local base = KEYS[index]
  local state, log, ids = base .. ':s:' .. topic, base .. ':l:' .. topic, base .. ':i'
  local held = call('MGET', state, base .. ':r')
  local found, noted = held[1], held[2]
  local start, lost, of, gathered, last, latest = now * 1000, 0, nil, now, nil, now
  if found then
    start, lost, of, gathered, last, latest = unpack('<dddddd', found)
  else
    local top = call('XREVRANGE', log, '+', '-', 'COUNT', 1)[1]
    if top then
      last, latest = tonumber(string.match(top[1], '^(%d+)')), (load_extras().times_of(top))
      gathered = 0
    end
  end

  -- A clock that was set back does not show whether a second has passed.
  local first = not found or now < latest or now - now % SECOND ~= latest - latest % SECOND
  local complete, known, holder, renewed = nil, nil, ids, first
  if first or few_ids or may_be_known == 1 then
    -- At the first use, after an eviction of a generation, and after a long silence, the shard knows
    -- the ids of later messages only. The ids that a log still has are added at the next check of its
    -- topic.
    held = call('HMGET', ids, 'since', key)
    local turned = 0
    complete, known = now, held[2]
    if held[1] then
      complete, turned = unpack('<dd', held[1])
    else
      load_extras().begin_ids(ids, now, 0)
      call('PEXPIRE', ids, whole(2 * remember))
    end
    if turned ~= 0 then
      local older = base .. ':j'
      -- Both generations have the entry `since`.
      held = call('HMGET', older, 'since', key)
      if not held[1] and now - turned < remember then
        load_extras().begin_ids(ids, now, 0)
        complete = now
      elseif held[2] and not known then
        holder, known = older, held[2]
      end
    end
    if gathered < complete and not known then
      load_extras().gather_ids(ids, log)
      known = call('HGET', holder, key)
      gathered, renewed = complete, true
    end
  end

  local since, starts, start_known, time, place
  if not known then
    since = unbroken[base] or noted and unpack('<d', noted) or load_extras().lineage(base)
    if since > now then now = since end
    starts = not found and base .. ':f'
    start_known = starts and tonumber(call('ZSCORE', starts, topic))
    if start_known and start_known > floor and start_known > (last or 0) then
      -- Subscribers have received this start.
      start, lost, of = start_known, last and now or 0, since
      last = start_known - 1
    end
    if not last or last < floor or of ~= since then
      -- There is no numbering, or it may have lost positions: start a new one after all of them. The
      -- log keeps its messages, and records until when messages may be missing: until `since`, or until
      -- now if the caller knows a later position, or if a log has no state.
      if floor >= since * 1000 or last and not found then
        lost = now
      elseif last or floor > 0 then
        lost = math.max(lost, since)
      end
      local leap = load_extras().LEAP
      start = math.max(now * 1000, floor > 0 and floor + leap or 0, last and last + leap or 0)
      last = start - 1
    end
    -- A numbering without a message has not been checked yet.
    if last < start then first, renewed = true, true end
    time = now < latest and latest or now
    place = pack('<dd', numbered == 0 and 0 or last + 1, time)
    -- Write the id before everything else: a server that refuses writes then fails before it sends
    -- the message. A call without a look-up can also find its id here: a network may deliver the
    -- call after its repetition.
    if call('HSETNX', ids, key, place .. mark) == 0 then known = call('HGET', ids, key) end
  end

  local answer
  if known then
    -- A write, so that a caller that waits for replicas also waits for the original message.
    call('HSET', holder, key, known)
    answer = sub(known, 17) == mark and 'd' .. sub(known, 1, 16) or 'c'
  else
    local record
    if numbered == 0 then
      record = 'm' .. place .. pack('<d', time) .. rest
    else
      local seq = last + 1
      record = 'm' .. place .. pack('<d', latest) .. rest
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
        call('SET', state, pack('<dddd', start, lost, since, gathered) .. place, 'PX', whole(silence))
        -- The end of the second, so that all messages of the second are older.
        call('ZADD', base .. ':z', whole(time - time % SECOND + SECOND - 1), topic)
      else
        call('SETRANGE', state, '32', place)
      end
      if start_known then call('ZREM', starts, topic) end
    end
    if alone then
      call('SPUBLISH', base .. ':t:' .. topic, record)
      call('SPUBLISH', base .. ':a', record)
    else
      load_extras().queue(base, topic, record)
    end
    if complete and (first or few_ids) then
      load_extras().turn_ids(ids, base .. ':j', complete)
    end
    answer = 'n' .. place
  end
  answers[at - 1] = answer
end

if extras then
  extras.send_queued()
  answers[#answers + 1] = extras.replication_id()
end
return answers
