-- Gives up the lease of a job, if it is still ours. The rest stays.
-- KEYS  1 lease · 2 rest, not looked at
-- ARGV  1 epoch, not looked at · 2 token
if redis.call('GET', KEYS[1]) == ARGV[2] then return redis.call('DEL', KEYS[1]) end
return 0
