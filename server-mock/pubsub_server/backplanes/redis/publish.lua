-- Number, keep, trim, de-duplicate by id and fan out: the publishes of one loop turn of one node.
--
-- KEYS  prefixes with the hash tag of a shard, for example `hp:{17}`; all of one slot in a cluster
-- ARGV  messages retained a topic, ms a message is retained, ids remembered a topic, ms they are
--       remembered at least, ms a silent topic keeps its numbering; then nine for each message:
--       index into KEYS, topic, id, fingerprint of what is published, ms it is kept (-1 as long as
--       the log allows, 0 not at all), highest position known to the caller (0 for none), and the
--       envelope before the timestamp, between timestamp and position, and after the position
-- gives one string a message: `n POSITION TIME` numbered, `d POSITION TIME` known already,
--       `c` known for something else. POSITION is 0 for what is not kept.
local keep, age, cap, remember, silence = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3]),
  tonumber(ARGV[4]), ARGV[5]

local answers, unbroken = {}, {}
for at = 6, #ARGV, 9 do
  local base, topic, id, print = KEYS[tonumber(ARGV[at])], ARGV[at + 1], ARGV[at + 2], ARGV[at + 3]
  local ttl, floor = tonumber(ARGV[at + 4]), tonumber(ARGV[at + 5])
  local ids, older = base .. ':i:' .. topic, base .. ':j:' .. topic
  local state, log = base .. ':s:' .. topic, base .. ':l:' .. topic
  local found, ids_held = redis.call('GET', state), redis.call('HLEN', ids)
  if found and ids_held == 0 then
    -- Evicted, or long ago; what the log still has is known all the same.
    for _, entry in ipairs(redis.call('XRANGE', log, '-', '+')) do
      local seq, kept = string.match(entry[1], '^(%d+)'), entry[2]
      ids_held = ids_held + redis.call('HSET', ids, kept[6], seq .. ' ' .. kept[2] .. ' *')
    end
    redis.call('PEXPIRE', ids, remember)
  end
  local place = ids
  local known = redis.call('HGET', ids, id)
  if not known then
    place = older
    known = redis.call('HGET', older, id)
  end
  local answer
  if known then
    local seq, time, mark = string.match(known, '^(%d+) (%d+) (.*)$')
    -- A write, so that a caller who waits for replicas waits for what this rests upon.
    redis.call('PEXPIRE', place, remember)
    answer = (mark == print or mark == '*') and ('d ' .. seq .. ' ' .. time) or 'c'
  else
    local since = unbroken[base]
    if not since then
      since = lineage(base)
      unbroken[base] = since
    end
    local start, last, latest, lost, of = now * 1000, nil, now, 0, nil
    if found then
      local a, b, c, d, e = string.match(found, '^(%d+) (%d+) (%d+) (%d+) (%d+)$')
      start, last, latest, lost, of = tonumber(a), tonumber(b), tonumber(c), tonumber(d), tonumber(e)
    else
      local top = redis.call('XREVRANGE', log, '+', '-', 'COUNT', 1)[1]
      if top then
        last, latest = tonumber(string.match(top[1], '^(%d+)')), tonumber(top[2][2])
      end
    end
    if not last or last < floor or of ~= since then
      -- No numbering, or one that may have forgotten what was numbered: a new one begins, beyond all
      -- of that. What the log has stays; that something may lack before now is noted.
      if last or floor > 0 then lost = now end
      start = math.max(now * 1000, floor + 2, last and last + LEAP or 0)
      last = start - 1
    end
    local time = math.max(now, latest)
    local seq, middle = 0, ARGV[at + 7]
    local body
    if ttl == 0 then
      body = ARGV[at + 6] .. whole(time) .. middle .. ARGV[at + 8]
    else
      seq = last + 1
      body = ARGV[at + 6] .. whole(time) .. middle .. ',"seq":' .. whole(seq) .. ARGV[at + 8]
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
        redis.call('XADD', log, 'MAXLEN', keep, whole(seq) .. '-0', 't', whole(time), 'x',
          whole(time + ttl), 'i', id, 'b', body)
        redis.call('PEXPIRE', log, age)
      else
        lost = time
      end
      redis.call('SET', state, whole(start) .. ' ' .. whole(seq) .. ' ' .. whole(time) .. ' ' ..
        whole(lost) .. ' ' .. whole(since), 'PX', silence)
      redis.call('ZADD', base .. ':z', whole(time), topic)
    end
    if ids_held >= cap then redis.call('RENAME', ids, older) end
    redis.call('HSET', ids, id, whole(seq) .. ' ' .. whole(time) .. ' ' .. print)
    redis.call('PEXPIRE', ids, remember)
    tell(base, topic, whole(seq) .. ' ' .. whole(time) .. ' ' .. whole(time + math.max(ttl, 0)) ..
      ' ' .. #topic .. ' ' .. #id .. ' ' .. #body .. '\n' .. topic .. id .. body)
    answer = 'n ' .. whole(seq) .. ' ' .. whole(time)
  end
  answers[#answers + 1] = answer
end

publish_told()
return answers
