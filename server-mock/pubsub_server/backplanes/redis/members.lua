-- Members come, change and go; whoever listens to the topic is told of what has changed.
--
-- A topic's members are a hash of client ids, each with the node that holds it and what it shows.
--
-- KEYS  prefixes with the hash tag of a shard; all of one slot in a cluster
-- ARGV  the node, members a topic at most, ms an emptied topic is remembered; then six for each
--       operation: index into KEYS, what is done, topic, client id, id of the change, and what the
--       member shows:
--         `j` joins; who is a member already stays as it is, and belongs to this node from now on
--         `u` shows this
--         `a` is written anew after the node began anew; the id has its former names, each between
--             commas
--         `l` leaves
-- gives `dead` where the node was given up by the others; else `ok` and for each operation
--       `n` joined, `k REST` known with what it shows, `u` changed, `l REST` left, `f` the topic is
--       full, `o` it belongs to another node, `-` nothing to do
local node, most, remember = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
for _, base in ipairs(KEYS) do
  if redis.call('ZSCORE', base .. ':d', node) then return { 'dead' } end
end

local answers = { 'ok' }
for at = 4, #ARGV, 6 do
  local base, op, topic, client = KEYS[tonumber(ARGV[at])], ARGV[at + 1], ARGV[at + 2], ARGV[at + 3]
  local id, body = ARGV[at + 4], ARGV[at + 5]
  local members, entry = base .. ':p:' .. topic, client .. ' ' .. topic
  local found = redis.call('HGET', members, client)
  local owner, rest
  if found then owner, rest = string.match(found, '^(%S+) (.*)$') end
  local function write(what)
    redis.call('HSET', members, client, node .. ' ' .. what)
    if owner and owner ~= node then redis.call('SREM', base .. ':m:' .. owner, entry) end
    redis.call('SADD', base .. ':m:' .. node, entry)
    redis.call('ZADD', base .. ':q', whole(now), topic)
    redis.call('ZREM', base .. ':e', topic)
  end
  local answer = '-'
  if op == 'l' then
    if owner == node then
      redis.call('SREM', base .. ':m:' .. node, entry)
      take_out(base, topic, client, remember)
      tell_change(base, 'l', topic, client, id, rest)
      answer = 'l ' .. rest
    end
  elseif not found then
    if op == 'j' and redis.call('HLEN', members) >= most then
      answer = 'f'
    else
      write(body)
      tell_change(base, 'j', topic, client, id, body)
      answer = 'n'
    end
  elseif op == 'j' then
    if owner ~= node then
      write(rest)
      tell_change(base, 'm', topic, client, id, node)
    end
    answer = 'k ' .. rest
  elseif owner == node or (op == 'a' and string.find(id, ',' .. owner .. ',', 1, true)) then
    write(body)
    if rest ~= body or op == 'u' then tell_change(base, 'u', topic, client, id, body) end
    answer = 'u'
  else
    answer = 'o'
  end
  answers[#answers + 1] = answer
end

publish_told()
return answers
