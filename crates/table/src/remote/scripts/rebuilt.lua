-- All reservations that a shard had lost are made again: it takes new ones.
-- KEYS  1 meta · 2 lock
-- ARGV  1 epoch · 2 token of the lock · 3 the generation that was rebuilt
-- Answers 1, or 0 when that was not for this server, or not under this lock: what was written before it may be lost again.
local meta = redis.call('HMGET', KEYS[1], 'epoch', 'rebuilding')
if meta[1] ~= ARGV[1] or meta[2] ~= ARGV[3] or redis.call('GET', KEYS[2]) ~= ARGV[2] then return 0 end
redis.call('HDEL', KEYS[1], 'rebuilding')
redis.call('DEL', KEYS[2])
return 1
