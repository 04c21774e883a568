-- Number, keep, trim, de-duplicate by id and fan out: the publishes of one loop turn of one node.
--
-- KEYS  prefixes with the hash tag of a shard, for example `hp:{17}`; all of one slot in a cluster
-- ARGV  ids remembered a shard and as many again, ms they are remembered as far as there is room,
--       ms a silent topic keeps its numbering; how many kinds of logs there are, and for each: messages
--       retained a topic, ms a message is retained; then eleven for each message: index into KEYS, topic,
--       id, scope of the sender's ids, fingerprint of what is published, kind of the log, ms it is kept (-1 as long as the log
--       allows, 0 not at all), highest position known to the caller (0 for none), and the envelope
--       before the timestamp, between timestamp and position, and after the position
-- gives one string a message: `n POSITION TIME` numbered, `d POSITION TIME` known already,
--       `c` known for something else. POSITION is 0 for what is not kept.
--
-- Ids have two halves, `i` and `j`: when the newer one is full or old enough it becomes the older one.
-- An id is known by what stands for it, its topic and its sender, with position, time and fingerprint.
local cap, remember, silence, kinds = tonumber(ARGV[1]), tonumber(ARGV[2]), ARGV[3], tonumber(ARGV[4])

-- Numbers as text: making one takes as long as a call of Redis, and most of these repeat.
local texts = { [now] = whole(now) }
local function text_of(number)
  local text = texts[number]
  if not text then
    text = whole(number)
    texts[number] = text
  end
  return text
end

local function key_of(topic, scope, id)
  return string.sub(redis.sha1hex(topic .. ' ' .. scope .. ' ' .. id), 1, 20)
end

-- The scope of the ids of who sent an envelope, as `backplanes.ids.scope` gives it.
local function scope_of(body)
  local read, envelope = pcall(cjson.decode, body)
  local sender = read and envelope.sender
  return sender and sender.type .. ' ' .. #sender.id .. ' ' .. sender.id
end

-- Since when all ids of a shard that are to be known are. The first time, when a half was evicted, and
-- after a long silence that begins anew; what logs still have is gathered as their topics come up.
local function ids_since(base)
  local ids = base .. ':i'
  local held = redis.call('HMGET', ids, 'since', 'turned')
  local since, turned = tonumber(held[1]), tonumber(held[2])
  if since and (turned == 0 or now - turned >= remember or
      redis.call('EXISTS', base .. ':j') == 1) then
    return since
  end
  redis.call('HSET', ids, 'since', whole(now), 'turned', '0')
  if not since then redis.call('PEXPIRE', ids, 2 * remember) end
  return now
end

local counts, complete = {}, {}
local function keep_id(base, key, known)
  local ids = base .. ':i'
  local count = counts[base] or redis.call('HLEN', ids)
  -- It knows since when as well.
  if count - 2 >= cap or (count > 2 and not counts[base] and redis.call('PTTL', ids) <= remember) then
    redis.call('UNLINK', base .. ':j')
    redis.call('RENAME', ids, base .. ':j')
    redis.call('PEXPIRE', base .. ':j', remember)
    redis.call('HSET', ids, 'since', whole(complete[base]), 'turned', whole(now))
    redis.call('PEXPIRE', ids, 2 * remember)
    count = 2
  end
  counts[base] = count + redis.call('HSET', ids, key, known)
end

local answers, unbroken = {}, {}
for at = 5 + 2 * kinds, #ARGV, 11 do
  local base, topic, id, scope = KEYS[tonumber(ARGV[at])], ARGV[at + 1], ARGV[at + 2], ARGV[at + 3]
  local print, kind, ttl = ARGV[at + 4], tonumber(ARGV[at + 5]), tonumber(ARGV[at + 6])
  local floor = tonumber(ARGV[at + 7])
  local keep, age = tonumber(ARGV[3 + 2 * kind]), tonumber(ARGV[4 + 2 * kind])
  local state, log = base .. ':s:' .. topic, base .. ':l:' .. topic
  local start, last, latest, lost, of = now * 1000, nil, now, 0, nil
  local found = redis.call('GET', state)
  if found then
    local a, b, c, d, e = string.match(found, '^(%d+) (%d+) (%d+) (%d+) (%d+)$')
    start, last, latest, lost, of = tonumber(a), tonumber(b), tonumber(c), tonumber(d), tonumber(e)
  else
    local top = redis.call('XREVRANGE', log, '+', '-', 'COUNT', 1)[1]
    if top then
      last, latest = tonumber(string.match(top[1], '^(%d+)')), tonumber(top[2][2])
    end
  end
  complete[base] = complete[base] or ids_since(base)
  if latest < complete[base] then
    for _, entry in ipairs(redis.call('XRANGE', log, '-', '+')) do
      local seq, kept = tonumber(string.match(entry[1], '^(%d+)')), entry[2]
      local known, sent_by = struct.pack('<dd', seq, tonumber(kept[2])), scope_of(kept[8])
      if sent_by then
        redis.call('HSETNX', base .. ':i', key_of(topic, sent_by, kept[6]), known)
      end
    end
    counts[base] = redis.call('HLEN', base .. ':i')
  end
  local key, place = key_of(topic, scope, id), base .. ':i'
  local known = redis.call('HGET', place, key)
  if not known then
    place = base .. ':j'
    known = redis.call('HGET', place, key)
  end
  local answer
  if known then
    local seq, time = struct.unpack('<dd', known)
    local mark = string.sub(known, 17)
    -- A write, so that a caller who waits for replicas waits for what this rests upon.
    redis.call('HSET', place, key, known)
    answer = (mark == print or mark == '') and ('d ' .. text_of(seq) .. ' ' .. text_of(time)) or 'c'
  else
    local since = unbroken[base]
    if not since then
      since = lineage(base)
      unbroken[base] = since
    end
    local starts = base .. ':f'
    local start_known = not found and tonumber(redis.call('ZSCORE', starts, topic))
    if start_known and start_known > floor and start_known > (last or 0) then
      -- Its subscribers were given this start.
      start, lost, of = start_known, last and now or 0, since
      last = start_known - 1
    end
    if not last or last < floor or of ~= since then
      -- No numbering, or one that may have forgotten what was numbered: a new one begins, beyond all
      -- of that. What the log has stays; that something may lack before now is noted.
      if last or floor > 0 then lost = now end
      start = math.max(now * 1000, floor > 0 and floor + LEAP or 0, last and last + LEAP or 0)
      last = start - 1
    end
    local time = math.max(now, latest)
    local seq, head, middle, tail = 0, ARGV[at + 8], ARGV[at + 9], ARGV[at + 10]
    local body
    if ttl == 0 then
      body = head .. text_of(time) .. middle .. tail
    else
      seq = last + 1
      body = head .. text_of(time) .. middle .. ',"seq":' .. text_of(seq) .. tail
      if ttl < 0 or ttl > age then ttl = age end
      if keep > 0 and ttl > 0 then
        local held = redis.call('XLEN', log)
        if held >= keep then
          local first = redis.call('XRANGE', log, '-', '+', 'COUNT', 1)
          lost = math.max(lost, tonumber(first[1][2][2]))
        elseif held == 0 and last >= start then
          -- Its time was over, or it was evicted.
          lost = math.max(lost, latest)
        end
        redis.call('XADD', log, 'MAXLEN', keep, text_of(seq) .. '-0', 't', text_of(time), 'x',
          text_of(time + ttl), 'i', id, 'b', body)
        -- It outlives its newest message, and is renewed far less often than messages come.
        if redis.call('PTTL', log) < age then redis.call('PEXPIRE', log, age + age / 8) end
      else
        lost = time
      end
      redis.call('SET', state, text_of(start) .. ' ' .. text_of(seq) .. ' ' .. text_of(time) .. ' ' ..
        text_of(lost) .. ' ' .. text_of(since), 'PX', silence)
      redis.call('ZADD', base .. ':z', text_of(time), topic)
      if start_known then redis.call('ZREM', starts, topic) end
    end
    keep_id(base, key, struct.pack('<dd', seq, time) .. print)
    tell(base, topic, text_of(seq) .. ' ' .. text_of(time) .. ' ' .. text_of(time + math.max(ttl, 0)) ..
      ' ' .. #topic .. ' ' .. #id .. ' ' .. #body .. '\n' .. topic .. id .. body)
    answer = 'n ' .. text_of(seq) .. ' ' .. text_of(time)
  end
  answers[#answers + 1] = answer
end

publish_told()
return answers
