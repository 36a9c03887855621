-- Compare-and-set of a reservation of a unique value.
-- KEYS  1 meta · 2 reservations
-- ARGV  1 epoch · 2 fingerprint · 3 expected ("": none) · 4 new ("": none)
-- Answers { 1 when it is done or 0, what is there otherwise, generation, how many reservations were made }.
local meta = redis.call('HMGET', KEYS[1], 'epoch', 'generation', 'reserved', 'rebuilding')
if meta[1] ~= ARGV[1] then return redis.error_reply('EPOCH another server, or another history of it') end
-- A row may have the value whose reservation was lost.
if meta[4] and ARGV[4] ~= '' then return redis.error_reply('REBUILD reservations that were lost are made again') end
local found = redis.call('HGET', KEYS[2], ARGV[2]) or ''
if found ~= ARGV[3] then return { 0, found, meta[2] or '', meta[3] or '0' } end
local made = meta[3] or '0'
if ARGV[4] == '' then
  redis.call('HDEL', KEYS[2], ARGV[2])
else
  redis.call('HSET', KEYS[2], ARGV[2], ARGV[4])
  made = redis.call('HINCRBY', KEYS[1], 'reserved', '1')
end
return { 1, '', meta[2] or '', made }
