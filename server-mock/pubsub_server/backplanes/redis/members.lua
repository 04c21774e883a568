-- Members join, change and leave; subscribers to the topic get the changes.
--
-- A topic's members are a hash of client ids, each with the node that holds it and what it shows.
--
-- KEYS  prefixes with the hash tag of a shard; all of one slot in a cluster
-- ARGV  the node, members a topic at most, ms an emptied topic is remembered; then six for each
--       operation: index into KEYS, what is done, topic, client id, id of the change, and what the
--       member shows:
--         `j` joins; who is a member already stays as it is, and belongs to this node from now on
--         `u` shows this
--         `a` is written again under a new lease; the id has the former ones, each between
--             commas
--         `l` leaves
--         `U` and `A` are `u` and `a` of a client without a connection: what is not of this node any
--             more is left as it is
--       Of two nodes that have the same client the one with the newer connection holds the member.
-- gives `dead` where the lease of the node was revoked; else `ok` and for each operation
--       `n` joined, `k REST` known with what it shows, `u` changed, `l REST` left, `f` the topic is
--       full, `o` it belongs to another node, `-` nothing to do
local node, most, remember = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
for _, base in ipairs(KEYS) do
  if redis.call('ZSCORE', base .. ':d', node) then return { 'dead' } end
end

-- When the connection was authenticated by which a member is there.
local function since(shown) return tonumber(string.match(shown, '^{"since":(%d+)')) or 0 end
local function visible(shown) return (string.gsub(shown, '^{"since":%d+,', '{')) end

local answers = { 'ok' }
for at = 4, #ARGV, 6 do
  local base, op, topic, client = KEYS[tonumber(ARGV[at])], ARGV[at + 1], ARGV[at + 2], ARGV[at + 3]
  local id, body = ARGV[at + 4], ARGV[at + 5]
  local left = op == 'U' or op == 'A'
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
  elseif op == 'j' then
    if owner ~= node or since(rest) ~= since(body) then
      rest = string.gsub(rest, '^{"since":%d+', '{"since":' .. whole(since(body)))
      write(rest)
    end
    if owner ~= node then queue_change(base, 'm', topic, client, id, node) end
    answer = 'k ' .. rest
  else
    local ours = owner == node or (op == 'a' and string.find(id, ',' .. owner .. ',', 1, true))
    if ours or (not left and since(body) > since(rest)) then
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
return answers
