-- Renews the lease of a job, if it is still ours.
-- KEYS  1 lease · 2 rest, not looked at
-- ARGV  1 epoch, not looked at · 2 token · 3 lifetime in milliseconds
if redis.call('GET', KEYS[1]) ~= ARGV[2] then return 0 end
return redis.call('PEXPIRE', KEYS[1], ARGV[3])
