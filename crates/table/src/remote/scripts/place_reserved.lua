-- Puts the reservations of a shard of a cluster that were staged in their place, if nothing has happened since and there are none yet.
-- KEYS  1 meta · 2 hold · then place and stage of the reservations of each unique column
-- ARGV  1 epoch · 2 loaded field · 3 token of the hold · 4 epoch in which the stage was begun · 5 reservations that were staged
-- Answers { generation, how many reservations were made }, or {}: it has to begin again.
local meta = redis.call('HMGET', KEYS[1], 'epoch', ARGV[2], 'generation', 'rebuilding')
if meta[1] ~= ARGV[1] then return redis.error_reply('EPOCH another server, or another history of it') end
if meta[1] ~= ARGV[4] or meta[2] or meta[4] or redis.call('GET', KEYS[2]) ~= ARGV[3] then return {} end
local staged = 0
for i = 3, #KEYS, 2 do
  if redis.call('EXISTS', KEYS[i]) == 1 then return {} end
  staged = staged + redis.call('HLEN', KEYS[i + 1])
end
if staged ~= tonumber(ARGV[5]) then return {} end
for i = 3, #KEYS, 2 do
  if redis.call('EXISTS', KEYS[i + 1]) == 1 then
    redis.call('RENAME', KEYS[i + 1], KEYS[i])
    redis.call('PERSIST', KEYS[i])
  end
end
return { meta[3] or '', redis.call('HINCRBY', KEYS[1], 'reserved', staged) }
