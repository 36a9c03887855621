-- Gives up a lease or lock, if it is still ours.
-- KEYS  1 lock
-- ARGV  1 epoch, not looked at · 2 token
if redis.call('GET', KEYS[1]) == ARGV[2] then return redis.call('DEL', KEYS[1]) end
return 0
