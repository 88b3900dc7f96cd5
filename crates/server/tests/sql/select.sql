create table t (id int primary key, a int, b bigint, s text, v varchar(10), c char(5), f float8, ok bool, ts timestamp);
insert into t values (1, 10, 100, 'one', 'uno', 'ab', 1.5, true, '2024-02-29 12:34:56.789');
insert into t values (2, 20, 200, 'two', 'dos', 'abc', -2.25, false, '1999-12-31 23:59:59'), (3, 30, null, null, null, null, null, null, null);
insert into t (id, s) values (4, 'it''s') returning id, s, a;
select * from t order by id;
select id, a + 1 as next, -a, a * 2, a / 3, a % 3, b - a from t order by id desc;
select count(*), count(b), sum(a), sum(b), min(s), max(s), avg(a), avg(f) from t;
select ok, count(*) from t group by ok order by ok;
select a / 10 as g, sum(b) from t group by a / 10 having count(*) > 0 order by g;
select id from t where a between 10 and 20 order by id;
select id from t where s like 't%' or s is null order by id;
select id from t where id in (4, 2, 2, 99) order by id;
select id from t where not (a > 10) order by id;
select id, case when a > 15 then 'big' when a is null then 'none' else 'small' end from t order by id;
select coalesce(s, 'nothing'), length(v), upper(s), c || '|' from t order by id;
select distinct a > 15 from t order by 1;
select id from t order by a desc nulls last, id limit 2 offset 1;
select id from t order by s nulls first;
select t.id as i from t as t where t.id = 2;
select 1 + 2 as three, 'x' || 'y', null, true and not false, 7 / 2, 7.0 / 2, 1e3;
select * from generate_series(1, 5);
select sum(g) from generate_series(1, 100) as g where g % 7 = 0;
values (1, 'a'), (2, 'b');
select max(id) from t where id > 100;
select f, f * 2, f::int, b::text, '42'::int + 1, 3.7::int, (-2.5)::int from t where id <= 2 order by id;
select ts, ts::text from t where id = 1;
select id from t where ts < '2000-01-01' order by id;
select 'a' < 'b', 'abc' = 'abc  '::char(5), null = null, null is null, 1 is distinct from null;
select abs(-5), lower('ABC'), round(2.5), floor(2.7), ceil(2.1), greatest(1, 5, 3), least(1, null, 3), nullif(1, 1), substring('hello' from 2 for 3);
create table lim (id int primary key, n int);
select * from lim limit id;
select * from lim offset n;
select * from lim order by id limit 1 + n;
select * from lim order by id limit lim.id;
select * from lim limit nosuch;
select * from lim limit 'x';
select * from lim limit -1;
select * from lim offset -1;
select * from lim limit null;
select * from lim limit 1.5;
select * from lim limit count(*);
select null - 'x'::name; --refused
select null - 'x'::text; --refused
select null - 'x'::varchar; --refused
select * from lim limit 1 offset id;
select 'x'::name || 'y';
select 'x'::name = 'x', 'x'::name < 'y'::text;
drop table lim;
create table paren (id int primary key, a int);
insert into paren values (1, 10), (2, 20), (3, 30), (4, null);
select -a as a from paren order by (a);
select -a as a from paren order by ((a)) desc;
select -a as a from paren order by (a) + 0;
select a + 1 as x from paren order by (x) limit 2;
select a / 20 as g, count(*) from paren group by (g) order by (g);
select a / 20 as a, count(*) from paren group by (a) order by (a);
select distinct a / 20 as g from paren order by (g);
select id as a, a from paren order by (a);
drop table paren;
select from t where id = 1; --refused
select from generate_series(1, 2); --refused
create table nothing (); --refused
select count(t.*) from t; --refused
