-- Makes the tier, unless it is there.
-- KEYS  1 tier
-- ARGV  1 epoch, not looked at · 2 an id · 3 shards · 4 version · 5 what tells the database from others ("": not remembered)
-- Answers { id, shards, version, database or nil } as they are now.
if redis.call('EXISTS', KEYS[1]) == 0 then
  redis.call('HSET', KEYS[1], 'id', ARGV[2], 'shards', ARGV[3], 'version', ARGV[4])
end
if ARGV[5] ~= '' then redis.call('HSETNX', KEYS[1], 'database', ARGV[5]) end
return redis.call('HMGET', KEYS[1], 'id', 'shards', 'version', 'database')
