-- Has a shard repaired before anything else is done with it.
-- KEYS  1 meta
-- ARGV  1 epoch
if redis.call('HGET', KEYS[1], 'epoch') ~= ARGV[1] then return 0 end
redis.call('HSET', KEYS[1], 'epoch', 'doubted')
return 1
