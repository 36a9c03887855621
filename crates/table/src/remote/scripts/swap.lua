-- Compare-and-set of a reservation of a unique value.
-- KEYS  1 meta · 2 reservations
-- ARGV  1 epoch · 2 fingerprint · 3 expected ("": none) · 4 new ("": none)
-- Answers { 1, generation } or { 0, what is there }.
local meta = redis.call('HMGET', KEYS[1], 'epoch', 'generation')
if meta[1] ~= ARGV[1] then return redis.error_reply('EPOCH another server, or another history of it') end
local found = redis.call('HGET', KEYS[2], ARGV[2]) or ''
if found ~= ARGV[3] then return { 0, found } end
if ARGV[4] == '' then
  redis.call('HDEL', KEYS[2], ARGV[2])
else
  redis.call('HSET', KEYS[2], ARGV[2], ARGV[4])
end
return { 1, meta[2] or '' }
