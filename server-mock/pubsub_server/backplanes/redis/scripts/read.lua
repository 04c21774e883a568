-- Read the logs of topics of one shard, as one snapshot.
--
-- KEYS: one prefix with the hash tag of a shard
-- ARGV: maximum topics without a log whose first position is remembered (0: don't assign one); then
--   five for each topic: the topic; the mode (`after` or `before` a position, `since` a time, `newest`,
--   or `nothing`); that position or time; maximum messages (0: all); bytes after which no more messages
--   are added (0: no limit)
-- Returns the time in ms and the time since which nothing was lost; then three for each topic:
--   `START LAST LATEST LOST` ('' without a log), the number of retained messages, and the entries as
--   in XRANGE, oldest first. The maximum counts from the oldest entry for `after`, otherwise from the
--   newest.
-- For `since`, a topic without a log is `0 0 0 LOST` if Redis has evicted keys: its log may be among
-- them. Except for `after`, a topic without a log gets the first position of its future log; LAST is
-- the position before it.

-- include clock.lua
-- include logs.lua
-- include lineage.lua

local base, remembered = KEYS[1], tonumber(ARGV[1])
local function reversed(list)
  local turned = {}
  for index = #list, 1, -1 do turned[#turned + 1] = list[index] end
  return turned
end

-- The time of the newest trimmed message of a numbering: the oldest entry of the log has it. 0: none.
local function trimmed_of(log, start)
  local oldest = redis.call('XRANGE', log, '-', '+', 'COUNT', 1)[1]
  if not oldest then return 0 end
  local seq, _, before = struct.unpack('<ddd', oldest[2][2], 2)
  return seq > start and before or 0
end

local unbroken, evicted = lineage(base), nil
local function evictions()
  if evicted == nil then
    evicted = string.match(redis.call('INFO', 'stats'), 'evicted_keys:(%d+)') ~= '0'
  end
  return evicted
end
-- Messages may be missing after a failover, or if keys were evicted and the log is younger than the
-- requested time.
local function start_of(topic)
  local starts = base .. ':f'
  local found = redis.call('ZSCORE', starts, topic)
  if found then return tonumber(found) end
  local start = math.max(now, unbroken) * 1000
  -- This fails if the store is full.
  local added = redis.pcall('ZADD', starts, whole(start), topic)
  if type(added) == 'table' then return nil end
  if redis.call('ZCARD', starts) > remembered then
    redis.call('ZREMRANGEBYRANK', starts, 0, -remembered - 1)
  end
  return start
end
local function marked(topic, log, state, mode, mark)
  if not state then
    local start = remembered > 0 and mode ~= 'after' and start_of(topic)
    local lost = mode == 'since' and evictions() and now or 0
    if start then return whole(start) .. ' ' .. whole(start - 1) .. ' 0 ' .. whole(lost) end
    return lost > 0 and '0 0 0 ' .. whole(lost) or ''
  end
  local start, lost, of, _, last, latest = read_state(state)
  if of ~= unbroken then lost = math.max(lost, unbroken) end
  if mode == 'since' then lost = math.max(lost, trimmed_of(log, start)) end
  if mode == 'since' and start > tonumber(mark) * 1000 and evictions() then lost = now end
  return whole(start) .. ' ' .. whole(last) .. ' ' .. whole(latest) .. ' ' .. whole(lost)
end

-- Entries from one end of a log, some at a time, until one is not wanted or a limit is reached.
-- Expired ones do not count, because they are no part of an answer. At least two that do are taken:
-- a message of any size is a page, and the next one shows that the page is not the last.
local function take(command, log, from, to, count, most, wanted)
  local taken, size, alive = {}, 0, 0
  while from and #taken < count do
    local some = math.min(count - #taken, size * 4 < most and 64 or most > 0 and 16 or 200)
    local entries = redis.call(command, log, from, to, 'COUNT', some)
    from = #entries == some and '(' .. entries[some][1] or nil
    for _, entry in ipairs(entries) do
      local time, expiry = times_of(entry)
      local full = most > 0 and size > most and alive > 1
      if full or (wanted and not wanted(time)) then return taken end
      taken[#taken + 1] = entry
      if expiry > now then size, alive = size + #entry[2][2], alive + 1 end
    end
  end
  return taken
end

local answers = { whole(now), whole(unbroken) }
for at = 2, #ARGV, 5 do
  local topic, mode, mark = ARGV[at], ARGV[at + 1], ARGV[at + 2]
  local limit, most = tonumber(ARGV[at + 3]), tonumber(ARGV[at + 4])
  local log = base .. ':l:' .. topic
  local entries = {}
  local count = limit > 0 and limit or 1000000
  if mode == 'after' and most > 0 then
    entries = take('XRANGE', log, '(' .. mark, '+', count, most)
  elseif mode == 'after' then
    entries = redis.call('XRANGE', log, '(' .. mark, '+', 'COUNT', count)
  elseif mode == 'newest' and most > 0 then
    entries = reversed(take('XREVRANGE', log, '+', '-', count, most))
  elseif mode == 'newest' then
    entries = reversed(redis.call('XREVRANGE', log, '+', '-', 'COUNT', count))
  elseif mode == 'before' then
    entries = reversed(take('XREVRANGE', log, whole(tonumber(mark) - 1), '-', count, most))
  elseif mode == 'since' then
    local floor = tonumber(mark)
    local function newer(time) return time > floor end
    entries = reversed(take('XREVRANGE', log, '+', '-', count, most, newer))
  end
  answers[#answers + 1] = marked(topic, log, redis.call('GET', base .. ':s:' .. topic), mode, mark)
  answers[#answers + 1] = redis.call('XLEN', log)
  answers[#answers + 1] = entries
end
return answers
