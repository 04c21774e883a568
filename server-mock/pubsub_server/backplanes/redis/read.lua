-- Read retained messages of topics of one shard, with where each log stands, all of one moment.
--
-- KEYS  one prefix with the hash tag of a shard
-- ARGV  four for each topic: the topic; `after` a position, `since` a time, `newest`, or
--       `nothing`; that position or time; messages at most (0: all)
-- gives the time in ms, then for each topic `START LAST LATEST LOST` ('' without a log), how many
--       messages are retained, and the entries as XRANGE gives them, oldest first. `after` counts from the first, the others from
--       the newest; one more than asked for shows that there are more.
local base = KEYS[1]
local function reversed(list)
  local turned = {}
  for index = #list, 1, -1 do turned[#turned + 1] = list[index] end
  return turned
end

local answers = { whole(now) }
for at = 1, #ARGV, 4 do
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
        if tonumber(entry[2][2]) <= floor or #taken >= count then
          more = false
          break
        end
        taken[#taken + 1] = entry
      end
      from = more and '(' .. some[#some][1] or nil
    until not from
    entries = reversed(taken)
  end
  answers[#answers + 1] = redis.call('GET', base .. ':s:' .. topic) or ''
  answers[#answers + 1] = redis.call('XLEN', log)
  answers[#answers + 1] = entries
end
return answers
