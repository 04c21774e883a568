-- Read the logs of topics of one shard, as one snapshot.
--
-- KEYS: one prefix with the hash tag of a shard
-- ARGV: maximum topics without a log whose first position is remembered (0: don't assign one); then
--   four for each topic: the topic; the mode (`after` a position, `since` a time, `newest`, or
--   `nothing`); that position or time; maximum messages (0: all)
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
  -- This fails if the store is full.
  local added = redis.pcall('ZADD', starts, whole(now * 1000), topic)
  if type(added) == 'table' then return nil end
  if redis.call('ZCARD', starts) > remembered then
    redis.call('ZREMRANGEBYRANK', starts, 0, -remembered - 1)
  end
  return now * 1000
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

local answers = { whole(now), whole(unbroken) }
for at = 2, #ARGV, 4 do
  local topic, mode, mark, limit = ARGV[at], ARGV[at + 1], ARGV[at + 2], tonumber(ARGV[at + 3])
  local log = base .. ':l:' .. topic
  local entries = {}
  local count = limit > 0 and limit or 1000000
  if mode == 'after' then
    entries = redis.call('XRANGE', log, '(' .. mark, '+', 'COUNT', count)
  elseif mode == 'newest' then
    entries = reversed(redis.call('XREVRANGE', log, '+', '-', 'COUNT', count))
  elseif mode == 'since' then
    local floor, from, taken = tonumber(mark), '+', {}
    repeat
      local some = redis.call('XREVRANGE', log, from, '-', 'COUNT', 200)
      local more = #some == 200
      for _, entry in ipairs(some) do
        if times_of(entry) <= floor or #taken >= count then
          more = false
          break
        end
        taken[#taken + 1] = entry
      end
      from = more and '(' .. some[#some][1] or nil
    until not from
    entries = reversed(taken)
  end
  answers[#answers + 1] = marked(topic, log, redis.call('GET', base .. ':s:' .. topic), mode, mark)
  answers[#answers + 1] = redis.call('XLEN', log)
  answers[#answers + 1] = entries
end
return answers
