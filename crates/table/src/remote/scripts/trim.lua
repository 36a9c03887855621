-- Says that everything up to a position is in the database: entries go, rows may be evicted, tombstones be forgotten.
-- KEYS  1 meta · 2 stream · 3 lease · 4 hold · 5… tombstones of each table
-- ARGV  1 epoch · 2 token of the lease · 3 position · 4 the entry behind it
-- Answers 1, or 0 when the lease is not held.
local meta = redis.call('HMGET', KEYS[1], 'epoch', 'drained', 'forgotten')
if meta[1] ~= ARGV[1] then return redis.error_reply('EPOCH another server, or another history of it') end
if redis.call('GET', KEYS[3]) ~= ARGV[2] then return 0 end
local before = meta[2] or '0'
if tonumber(ARGV[3]) < tonumber(before) then return 1 end
-- First what frees memory: at maxmemory nothing that grows may be a script's first write.
redis.call('XTRIM', KEYS[2], 'MINID', ARGV[4])
redis.call('HSET', KEYS[1], 'drained', ARGV[3])
if redis.call('EXISTS', KEYS[4]) == 1 then return 1 end
-- One release later than they could be: a read of the database that began before this one need not begin again.
local forgotten = tonumber(meta[3] or '0')
for i = 5, #KEYS do
  local last = redis.call('ZREVRANGEBYSCORE', KEYS[i], before, '-inf', 'WITHSCORES', 'LIMIT', 0, 1)
  if last[2] then
    redis.call('ZREMRANGEBYSCORE', KEYS[i], '-inf', before)
    if tonumber(last[2]) > forgotten then forgotten = tonumber(last[2]) end
  end
end
if forgotten > tonumber(meta[3] or '0') then
  redis.call('HSET', KEYS[1], 'forgotten', string.format('%.0f', forgotten))
end
return 1
