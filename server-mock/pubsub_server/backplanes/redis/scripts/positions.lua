-- Read the positions of several logs, as one snapshot. Trims expired messages at their beginning.
--
-- KEYS: prefixes with the hash tag of a shard; in a cluster, all of one slot
-- ARGV: a time in ms, or -1; then two for each topic: index into KEYS, topic
-- Returns the time in ms, then for each topic `FIRST LAST AT` ('' without a log). FIRST is the
-- position of the oldest retained message. AT is the position of the first message that is not older
-- than the time (0 without a time). Both are LAST + 1 if there is no such message.

-- include clock.lua
-- include logs.lua

local wanted = tonumber(ARGV[1])

-- The first entry from here that has not expired, and the last entry before it.
local function alive(log, from)
  local count, dead = 1, nil
  while true do
    local some = redis.call('XRANGE', log, from, '+', 'COUNT', count)
    for _, entry in ipairs(some) do
      local _, expires = times_of(entry)
      if expires > now then return entry, dead end
      dead = entry
    end
    if #some < count then return nil, dead end
    from, count = '(' .. some[#some][1], 100
  end
end

local answers = { whole(now) }
for at = 2, #ARGV, 2 do
  local base, topic = KEYS[tonumber(ARGV[at])], ARGV[at + 1]
  local state, log = base .. ':s:' .. topic, base .. ':l:' .. topic
  local found = redis.call('GET', state)
  local answer = ''
  if found then
    local start, lost, _, _, last = read_state(found)
    local behind = last + 1
    -- The log retains messages of the former numbering, whose positions do not count here.
    local first, dead = alive(log, whole(start))
    local oldest = first and seq_of(first) or behind
    if dead then
      redis.call('XTRIM', log, 'MINID', whole(seq_of(dead) + 1))
      -- If nothing is left, no entry has the time of the trimmed messages.
      if not first then
        redis.call('SETRANGE', state, 8, struct.pack('<d', math.max(lost, (times_of(dead)))))
      end
    end
    local mark = 0
    if wanted >= 0 then
      local from = seek(log, oldest, behind, function(entry) return (times_of(entry)) < wanted end)
      local entry = first and alive(log, whole(from))
      mark = entry and seq_of(entry) or behind
    end
    answer = whole(oldest) .. ' ' .. whole(last) .. ' ' .. whole(mark)
  end
  answers[#answers + 1] = answer
end
return answers
