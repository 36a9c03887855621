-- Makes it known under which generations other shards' reservations count.
-- KEYS  1 meta
-- ARGV  1 epoch, not looked at · then field, generation of each
for i = 2, #ARGV, 2 do redis.call('HSET', KEYS[1], ARGV[i], ARGV[i + 1]) end
return 1
