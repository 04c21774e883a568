-- Add, change and remove members; subscribers to the topic receive the changes.
--
-- The members of a topic are a hash of client ids, each with its node and its presence data. If two
-- nodes have the same client, the node with the newer connection holds the member.
--
-- KEYS: prefixes with the hash tag of a shard; in a cluster, all of one slot
-- ARGV: the node, number of the call, ms for which this number is remembered, maximum members of a
--   topic, ms for which an empty topic is remembered; then six for each operation: index into KEYS,
--   kind, topic, client id, id of the change, and presence data. The kinds:
--     `j` join; an existing member keeps its data and moves to this node, unless another node has a newer
--     connection of it
--     `u` update the data
--     `a` write again under a new lease; the id contains the former leases, each between commas
--     `l` leave
--     `J`, `U` and `A`: `j`, `u` and `a` for a client without a connection; `J` does nothing, the others
--     skip a member of another node
-- A call with the number of the last one is its repetition. It only returns the same answers, so that
-- the node learns what it has changed, and nothing is announced twice.
-- Returns `dead` if the lease of the node was revoked, and `late` if a later call was executed before,
-- or if the answers of this one are no longer known. Otherwise returns `ok`, and for each operation `n`
-- joined, `k REST` already a member with this data, `u` changed, `l REST` left, `f` the topic is full,
-- `o` another node holds the member, or `-` nothing changed.

-- include clock.lua
-- include changes.lua
-- include order.lua

-- A node repeats a call within seconds, unless it cannot reach the server. Then it still learns that the
-- call was executed, but not its answers.
local ANSWERS_MS = 60000

local node, number, most, remember = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[4]), tonumber(ARGV[5])
local answered = KEYS[1] .. ':y:' .. node
for _, base in ipairs(KEYS) do
  if redis.call('ZSCORE', base .. ':d', node) then return { 'dead' } end
  if is_late(base .. ':n:' .. node, number) then
    local last, answers = string.match(redis.call('GET', answered) or '', '^(%d+) (.*)$')
    if last ~= ARGV[2] then return { 'late' } end
    return cmsgpack.unpack(answers)
  end
end

-- When the connection of a member was authenticated, by the clock of Redis. Its node only knows two
-- bounds of this time, which are far apart if it was busy at its only heartbeat.
local function earliest(shown) return tonumber(string.match(shown, '^{"since":(%d+)')) or 0 end
local function latest(shown)
  return earliest(shown) + (tonumber(string.match(shown, '^{"since":%d+,"within":(%d+)')) or 0)
end
local function times(shown)
  return string.match(shown, '^{"since":%d+,"within":%d+,') or string.match(shown, '^{"since":%d+,') or '{'
end
local function visible(shown) return '{' .. string.sub(shown, #times(shown) + 1) end

local answers = { 'ok' }
for at = 6, #ARGV, 6 do
  local base, op, topic, client = KEYS[tonumber(ARGV[at])], ARGV[at + 1], ARGV[at + 2], ARGV[at + 3]
  local id, body = ARGV[at + 4], ARGV[at + 5]
  local left = string.find(op, '%u')
  op = string.lower(op)
  local members, entry = base .. ':p:' .. topic, client .. ' ' .. topic
  local found = redis.call('HGET', members, client)
  local owner, rest
  if found then owner, rest = string.match(found, '^(%S+) (.*)$') end
  local function write(what)
    redis.call('HSET', members, client, node .. ' ' .. what)
    if owner and owner ~= node then redis.call('SREM', base .. ':m:' .. owner, entry) end
    redis.call('SADD', base .. ':m:' .. node, entry)
    redis.call('ZADD', base .. ':o', whole(now), node)
    redis.call('ZADD', base .. ':q', whole(now), topic)
    redis.call('ZREM', base .. ':e', topic)
  end
  local answer = '-'
  if op == 'l' then
    if owner == node then
      redis.call('SREM', base .. ':m:' .. node, entry)
      remove_member(base, topic, client, remember)
      queue_change(base, 'l', topic, client, id, rest)
      answer = 'l ' .. rest
    end
  elseif not found then
    if left then
      answer = '-'
    elseif op == 'j' and redis.call('HLEN', members) >= most then
      answer = 'f'
    else
      write(body)
      queue_change(base, 'j', topic, client, id, body)
      answer = 'n'
    end
  elseif op == 'j' and left then
    answer = '-'
  elseif op == 'j' and owner ~= node and earliest(rest) > latest(body) then
    -- This call took so long that the client has joined at the other node in the meantime. Of
    -- connections whose order is not known, the last join counts.
    answer = 'o'
  elseif op == 'j' then
    if owner ~= node or times(rest) ~= times(body) then
      rest = times(body) .. string.sub(rest, #times(rest) + 1)
      write(rest)
    end
    if owner ~= node then queue_change(base, 'm', topic, client, id, node) end
    answer = 'k ' .. rest
  else
    local ours = owner == node or (op == 'a' and string.find(id, ',' .. owner .. ',', 1, true))
    if ours or (not left and earliest(body) > latest(rest)) then
      write(body)
      if op == 'a' then id = '' end
      if not ours then queue_change(base, 'm', topic, client, id, node) end
      if op == 'u' or visible(rest) ~= visible(body) then queue_change(base, 'u', topic, client, id, body) end
      answer = 'u'
    elseif not left then
      answer = 'o'
    end
  end
  answers[#answers + 1] = answer
end

send_queued()
for _, base in ipairs(KEYS) do note_call(base .. ':n:' .. node, number, ARGV[3]) end
redis.pcall('SET', answered, ARGV[2] .. ' ' .. cmsgpack.pack(answers), 'PX', ANSWERS_MS)
return answers
