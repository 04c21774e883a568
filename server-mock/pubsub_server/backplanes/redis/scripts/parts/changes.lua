-- include channels.lua

-- Announce that a member of a topic joined, changed, moved or left.
local function queue_change(base, change, topic, client, id, body)
  queue(base, topic, 'p' .. change .. ' ' .. whole(exactly) .. ' ' .. #topic .. ' ' .. #client ..
    ' ' .. #id .. ' ' .. #body .. '\n' .. topic .. client .. id .. body)
end

-- Remove a member. A topic without members is remembered for this many ms.
local function remove_member(base, topic, client, remember)
  local members = base .. ':p:' .. topic
  redis.call('HDEL', members, client)
  if redis.call('HLEN', members) == 0 then
    redis.call('ZREM', base .. ':q', topic)
    redis.call('ZADD', base .. ':e', whole(now), topic)
    redis.call('ZREMRANGEBYSCORE', base .. ':e', '-inf', whole(now - remember))
  else
    redis.call('ZADD', base .. ':q', whole(now), topic)
  end
end
