-- Prints sessions that wait for a lock below the sessions they wait for.
WITH RECURSIVE edges AS (
  SELECT pid AS waiter, unnest(pg_blocking_pids(pid)) AS blocker FROM pg_stat_activity
), tree AS (
  SELECT DISTINCT blocker AS pid, 0 AS depth, ARRAY[blocker] AS path
  FROM edges WHERE blocker NOT IN (SELECT waiter FROM edges)
  UNION ALL
  SELECT e.waiter, t.depth + 1, t.path || e.waiter
  FROM tree t JOIN edges e ON e.blocker = t.pid
  WHERE NOT e.waiter = ANY (t.path)
)
SELECT repeat('  ', depth) || t.pid AS session, a.state, left(a.query, 70) AS query
FROM tree t JOIN pg_stat_activity a USING (pid)
ORDER BY t.path;
