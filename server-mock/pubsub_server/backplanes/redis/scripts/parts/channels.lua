-- `send_queued` sends the queued records to the subscribers of the topic and of its whole shard, as
-- one message per channel.
local queued, channels = {}, {}
local function add(channel, record)
  local records = queued[channel]
  if records then
    records[#records + 1] = record
  else
    queued[channel] = { record }
    channels[#channels + 1] = channel
  end
end
local function queue(base, topic, record)
  add(base .. ':t:' .. topic, record)
  add(base .. ':a', record)
end
local function send_queued()
  for _, channel in ipairs(channels) do
    local records = queued[channel]
    redis.call('SPUBLISH', channel, records[2] and table.concat(records) or records[1])
  end
end
